"""A script that counts words, and its input."""

from pathlib import Path

Path("input").mkdir()
Path("input/1.txt").write_text("to be or not to be\n")
Path("count.py").write_text(
    "import sys\n"
    "import pyarrow as pa\n"
    "import pyarrow.compute as pc\n"
    "from firesteel import ExecutionEnvironment\n"
    "def tokenize(batches):\n"
    "    for batch in batches:\n"
    "        yield pa.record_batch({'word': pc.list_flatten(pc.utf8_split_whitespace(batch['value']))})\n"
    "env = ExecutionEnvironment.get_or_create()\n"
    "words = env.read_text(sys.argv[1]).map_in_arrow(tokenize, 'word string')\n"
    "words.key_by('word').aggregate({'n': ('word', 'count')}).write_parquet('words', mode='overwrite')\n"
    "env.execute('word count')\n"
)
for output in ("sales", "events"):
    Path("out", output).mkdir(parents=True)
