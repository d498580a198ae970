"""What the benchmarks share: contenders in processes of their own, the work of benchmark 1, inputs, work that only waits."""
