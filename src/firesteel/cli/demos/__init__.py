"""The demos. Each runs on real input and ends with what was decided and why; ``catalog`` lists them."""
