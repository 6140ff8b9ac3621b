"""ResourceQuotas of a namespace against the worst moment of a pipeline."""
