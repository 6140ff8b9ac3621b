"""`python -m gpuflow` is `gpuflow`."""

from gpuflow.cli.main import main

raise SystemExit(main())
