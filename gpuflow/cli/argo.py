"""`gpuflow argo semaphores|agent FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import add_common, available_amounts, read_pipelines, read_site, show_remarks
from gpuflow.cli.terminal import put
from gpuflow.core.emit import emit
from gpuflow.targets.argo.alerts import agent_manifests
from gpuflow.targets.argo.templates import semaphore_config_map, semaphore_shares, sizes_of

EXAMPLE = """gpuflow argo semaphores pipelines/*.yaml --name gpus --available nvidia.com/gpu=8 | kubectl apply -f -
gpuflow compile pipelines/*.yaml --target argo -o argo_templates/ --semaphores gpus
gpuflow argo agent pipelines/*.yaml --site site.yaml | kubectl apply -f -"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="semaphores|agent")
    each = actions.add_parser("semaphores", help="the ConfigMap that says how many GPU steps of each size run at once")
    add_common(each, ("yaml",))
    each.add_argument("--name", required=True, help="the ConfigMap, as in compile --semaphores")
    help = "how many of a resource the namespace may use; may be repeated. Others get one step of each size"
    each.add_argument("--available", action="append", default=[], metavar="RESOURCE=N", help=help)
    agent = actions.add_parser("agent", help="the Role and the token's Secret of the account that sends alerts")
    add_common(agent, ("yaml",))


def run(args: argparse.Namespace) -> int:
    site = read_site(args)
    if args.action == "agent":
        pipelines = read_pipelines(args, site, "argo")
        put("---\n".join(map(emit, agent_manifests(pipelines, site, args.namespace or site.namespace))))
        return 0
    available = available_amounts(args.available, "gpuflow argo semaphores")
    pipelines = read_pipelines(args, site, "argo")
    show_remarks(pipelines, site)
    limits = semaphore_shares(sizes_of(pipelines, site), available)
    put(emit(semaphore_config_map(args.name, args.namespace or site.namespace, limits)))
    return 0
