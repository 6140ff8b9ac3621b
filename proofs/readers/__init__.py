"""Foreign workflows run by the real Argo controller on simulated nodes, against what the Argo reader says of them."""
