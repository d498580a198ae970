"""The adaptive scheduler of streams (FLIP-461, FLIP-160, FLIP-322): when a running query is rescaled, and to what. No I/O."""
