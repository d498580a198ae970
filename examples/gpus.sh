#!/bin/sh
# A discovery script, as Spark wants it: prints the addresses of the GPUs of this machine. Without any, two that stand for nothing.
found=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | sed 's/.*/"&"/' | paste -sd, -)
echo "{\"name\": \"gpu\", \"addresses\": [${found:-\"0\", \"1\"}]}"
