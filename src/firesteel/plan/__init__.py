"""What is to be computed: expressions and relations with Spark's types and meaning. Both front ends make them; ``render`` writes them as SQL."""
