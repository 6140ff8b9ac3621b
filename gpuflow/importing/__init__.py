"""Files of other tools as pipelines of gpuflow, and written back as they are."""
