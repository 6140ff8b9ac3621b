"""Whether there is always room: bins, what may run at the same time, and proofs about them. Plain math."""
