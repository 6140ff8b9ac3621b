"""`gpuflow site show|presets|runtime|executor|gang|kubeflow`."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import add_namespace, namespace_of, namespace_text
from gpuflow.cli.terminal import print_text, put, show_json, table
from gpuflow.core.emit import emit
from gpuflow.core.errors import Where, fail
from gpuflow.engines import ARGO, DEFAULT_ENGINE, KUBEFLOW, engine_choices
from gpuflow.site import Site, presets
from gpuflow.spec.canonical import to_document
from gpuflow.targets import load_target

EXAMPLE = """gpuflow site presets
gpuflow site show gke
gpuflow site show site.yaml --format json
gpuflow site runtime site.yaml | kubectl apply --server-side -f -
gpuflow site executor site.yaml | kubectl apply -f -
gpuflow site kubeflow site.yaml                       # what the KFP installation must be told, ready to paste"""


ACTIONS = {
    "show": "print a site with everything it extends",
    "presets": "list the sites that come with gpuflow",
    "runtime": "print the ConfigMap that adds the supervisor to any image",
    "executor": "print the account of Argo's own containers, and the Secret of its token",
    "gang": "print the account of the pods that look after gangs, and its Role",
    KUBEFLOW: "print the setting of KFP's API server that the site needs (COMPILED_PIPELINE_SPEC_PATCH)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="|".join(ACTIONS))
    parsers = {name: actions.add_parser(name, help=help) for name, help in ACTIONS.items()}
    for name, each in parsers.items():
        if name != "presets":
            each.add_argument("site", nargs="?", default="nvidia", metavar="FILE|PRESET")
        if name in ("runtime", "executor", "gang"):
            add_namespace(each)
    parsers["show"].add_argument("--format", choices=("yaml", "json"), default="yaml")
    help = "airflow: a Role for the accounts of its workers and its triggerer; kubeflow: a Role for the account of "
    help += "its runs, which all pods of a run have; default: argo"
    parsers["gang"].add_argument("--engine", choices=engine_choices(), default=DEFAULT_ENGINE, help=help)
    help = "with --engine airflow: an account of its; default: airflow/airflow-worker and airflow/airflow-triggerer"
    parsers["gang"].add_argument("--account", action="append", metavar="NS/NAME", help=help)
    kubeflow = parsers[KUBEFLOW]
    kubeflow.add_argument(
        "--namespace", metavar="NS", type=namespace_text, help="where KFP is installed; default: kubeflow"
    )
    kubeflow.add_argument(
        "--format", choices=("text", "env", "json"), default="text", help="env: the variable alone; json: the patch"
    )


def run(args: argparse.Namespace) -> int:
    if args.action == "presets":
        print_text(
            table([(name, Site.load(name).description or "") for name in presets()], ("preset", "what it is")) + "\n"
        )
        return 0
    site = Site.load(args.site)
    if args.action == "runtime":
        from gpuflow.runtime.bundle import config_map

        put(emit(config_map(site.runtime.config_map, namespace_of(args, site))))
        return 0
    if args.action == "executor":
        from gpuflow.targets.argo.engine_options import account_manifests

        if (named := site.engine(ARGO).executor) is None:
            text = f'site "{site.name}" names no account for Argo\'s own containers'
            hint = "set engines.argo.executor: {service_account: NAME, token_secret: NAME.service-account-token}"
            raise fail("GF318", text, where=Where(site.source.file), hint=hint)
        put("---\n".join(map(emit, account_manifests(named, namespace_of(args, site)))))
        return 0
    if args.action == "gang":
        account = load_target(args.engine).gang_account(site, args.namespace or site.namespace, args.account)
        namespace_of(args, site)  # which must be said
        put("---\n".join(map(emit, account)))
        return 0
    if args.action == KUBEFLOW:
        return _kubeflow(args, site)
    document = to_document(site)
    if args.format == "json":
        show_json(document)
    else:
        put(emit(document))
    return 0


def _kubeflow(args: argparse.Namespace, site: Site) -> int:
    """What an administrator of KFP sets, once."""
    from gpuflow.targets.kubeflow import installation

    if args.format == "json":
        show_json(installation.spec_patch(site))
    elif args.format == "env":
        put(f"{installation.VARIABLE}={installation.patch_text(installation.spec_patch(site))}\n")
    else:
        put(installation.instructions(site, args.namespace or installation.NAMESPACE))
    return 0
