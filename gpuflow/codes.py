"""Every code gpuflow can say, in one table. `gpuflow explain CODE` and the reference page are printed from it.

| range  | about                                             |
|--------|---------------------------------------------------|
| GF100s | reading a document, and what must hold in it      |
| GF200s | GPUs, sites, and how a site spells a step         |
| GF300s | targets: what an engine cannot say                |
| GF400s | manifests of a cluster                            |
| GF500s | what the cluster will say to a pipeline           |
| GF900s | the command line and its surroundings             |

A code keeps its meaning for ever; one that is no longer said is not given to anything else.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    id: str
    title: str
    meaning: str
    way_out: str


_ROWS: tuple[tuple[str, str, str, str], ...] = (
    # Reading a file.
    ("GF100", "A file cannot be read", "The file does not exist, is a directory, or may not be read.", "Check the path; names close to it are suggested."),
    ("GF101", "Not valid YAML", "The text breaks YAML's grammar at the place shown.", "Fix the syntax there: a missing quote, bracket or indentation is the usual cause."),
    ("GF102", "The document is too large", "Documents over 32 MiB are refused: nobody wrote them by hand, and reading them takes minutes.", "Use for_each instead of one step per item, or split the pipeline into sub-pipelines."),
    ("GF103", "Not UTF-8 text", "The file holds bytes that are not UTF-8, or a control character that YAML forbids.", "Save the file as UTF-8 and remove the character."),
    ("GF104", "A tab is used for indentation", "YAML allows only spaces to indent.", "Replace tabs by spaces; most editors can do it for the whole file."),
    ("GF105", "Nested too deeply", "The document nests deeper than 100 levels.", "Flatten it; no pipeline needs that."),
    ("GF106", "An unknown YAML tag", "Tags such as !!python/object or !Ref are not understood, on purpose: a document is data.", "Remove the tag and write the value itself."),
    ("GF107", "A key is not plain text", "Keys of a mapping must be words, and << merges mappings only.", "Write the key as a word, quoted if needed."),
    ("GF108", "More than one document", "A pipeline or site file holds exactly one document.", "Put each into a file of its own."),
    ("GF109", "A name stands twice", "The same key, step or container name is used twice in one place. YAML readers usually keep the last one in silence; gpuflow refuses.", "Rename or remove one of the two."),
    ("GF110", "An alias leads nowhere", "An alias (*name) has no anchor (&name) before it, or contains itself.", "Define the anchor earlier in the file."),
    ("GF111", "Aliases explode", "Following the aliases would make more than 200,000 nodes. Such a document can be tiny and still fill any memory.", "Write the values out, or use the pipeline's defaults."),
    ("GF112", "A request is above its limit", "Kubernetes refuses a container whose request is above its limit.", "Raise the limit or lower the request."),
    ("GF113", "An unknown key", "The document has a key that gpuflow does not know. It is refused, because a misspelt key that is ignored is a setting that silently does nothing.", "Use the suggested spelling; `gpuflow schema` lists all keys."),
    ("GF114", "A key is missing", "A required key is not there.", "Add it."),
    ("GF115", "Not one of the allowed words", "The value must be one of a fixed list.", "Use one of the words shown."),
    ("GF116", "A mapping is expected", "The value must be key: value pairs.", "Write a mapping."),
    ("GF117", "A list is expected", "The value must be a list.", "Write [a, b] or one '- item' per line."),
    ("GF118", "A number is expected", "The value must be a number.", "Write it without quotes."),
    ("GF119", "A value does not fit", "The value has the wrong shape for this place.", "See the field in the reference."),
    ("GF120", "Another kind of document", "The document's apiVersion or kind is not the one this command reads.", "Use the right file, or correct the two lines at its top."),
    ("GF121", "Not a quantity", "The value is not a Kubernetes quantity. The sentence after the colon is Kubernetes' own.", "Write 4, 500m, 16Gi, 1.5 or 1e9; mind that K, KB and Gib do not exist."),
    ("GF122", "A negative quantity", "Resources cannot be negative.", "Use 0 or more."),
    ("GF123", "Not a duration", "Durations are whole days, hours, minutes and seconds.", "Write 30s, 10m, 1h30m or 2d."),
    ("GF124", "Not true or false", "Only true and false are booleans. yes, no, on and off are text, as in YAML 1.2.", "Write true or false."),
    ("GF125", "Not a whole number", "The value must be an integer.", "Write digits only, without quotes."),
    ("GF126", "Not text", "The value must be text. Unquoted true, null and numbers are not.", "Quote it."),
    ("GF127", "A number is out of range", "The number is smaller or larger than makes sense here.", "Use a number in the range shown."),
    ("GF128", "Exactly one is needed", "Of several ways to say something exactly one must be given.", "Keep one."),
    ("GF131", "A name that not every engine accepts", "Names of pipelines, steps and containers become object names, label values and task ids. Only lower-case letters, digits and '-' work everywhere.", "Use the suggested name."),
    ("GF132", "A parameter or output name that not every engine accepts", "Such names become Argo parameters, KFP inputs and Python keyword arguments.", "Use letters, digits and '_', starting with a letter."),
    ("GF133", "Not an absolute path", "Paths in the container start with '/'.", "Start it with '/'."),
    ("GF134", "Not a label key", "Label and annotation keys follow Kubernetes' rule: an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' and '.'.", "Write it like team or example.com/team."),
    ("GF135", "Not a label value", "Label values are text of at most 63 letters, digits, '-', '_' and '.'.", "Shorten it; quote numbers."),
    ("GF136", "Not an environment variable name", "Only letters, digits and '_' work in every shell.", "Rename it."),
    ("GF137", "A variable of gpuflow", "Variables that start with GPUFLOW_ are set by the supervisor.", "Choose another name."),
    ("GF138", "Not the name of a Kubernetes object", "Object names are lower-case letters, digits, '-' and '.'.", "Check the name with kubectl get."),
    ("GF141", "Text with a NUL character", "No program can receive a NUL byte in an argument or a variable.", "Remove it, or pass the data as a file."),
    ("GF142", "Not a reference", "A reference is a map with one key: {param: …}, {output: step.name}, {item: …}, {run: id} or {join: […]}.", "Write one of these, or quote the text."),
    ("GF143", "Cannot be written as JSON", "Parameter values are JSON: text, finite numbers, true, false, lists and maps.", "Use one of these."),
    ("GF144", "A value of another type", "The value does not have the declared type.", "Change the value or the type."),
    ("GF145", "A parameter contradicts itself", "For example a required parameter with a default, or min above max.", "Drop one of the two."),
    ("GF146", "A value outside enum or range", "The value is not among the allowed ones.", "Use an allowed value."),
    ("GF147", "An output contradicts itself", "Values are passed by value and may have a default; files and directories are kept at a uri and have none.", "Use type: file or directory with a uri, or a value type without one."),
    ("GF151", "An empty amount", "cpu, memory and ephemeral_storage need a request, a limit, or one number for both.", "Give one."),
    ("GF152", "Not GPUs", "The short form names a model and a count.", "Write a100-80gb or a100-80gb x 2."),
    ("GF153", "Not a MIG slice", "The short form names a profile and the model it is cut from: a profile alone means different slices on different GPUs.", "Write 1g.10gb of a100-80gb."),
    ("GF154", "The identity contradicts itself", "run_as_root and a user id other than 0 exclude each other; user 0 without run_as_root is refused.", "Say run_as_root: true, or give another user."),
    ("GF155", "A container without a command", "Engines that have no access to the registry cannot read a command from the image.", "Write the command out."),
    ("GF156", "A container name is taken", "main, wait, init and base are names that engines use, and names must be unique in a pod.", "Choose another."),
    ("GF157", "A policy contradicts itself", "For example a longest wait that is shorter than the first.", "Correct the numbers."),
    ("GF158", "An exit code that cannot be", "Exit codes of failures are 1 to 255; 75, 78 and 79 belong to the supervisor; a code is final or retryable, not both.", "Use another code."),
    ("GF159", "fallback_after without spot", "Falling back to on-demand needs spot: prefer or require.", "Change the mode or drop fallback_after."),
    ("GF160", "Not an extended resource", "kubernetes.resources takes names with a domain such as rdma/hca.", "Use cpu, memory and ephemeral_storage of the step for the rest."),
    # Conditions.
    ("GF161", "Not a condition", "The condition breaks the small language's grammar at the place shown.", "Spell references out (steps.STEP.OUTPUT, params.NAME, item.NAME), use == != < <= > >= in, and, or, not; quote text."),
    ("GF162", "Types do not go together", "Only numbers are ordered, only values of one type are compared, only true or false decides. Found when loading, not at three in the morning.", "Compare values of one type; declare the output's type; gather a fan-out's list in a step of its own."),
    ("GF163", "Not a fan-out", "A fan-out runs over a list that is not empty, {range: …}, {param: …} or {output: …}.", "Give it one of these."),
    ("GF164", "A step that runs nothing, or two things", "A step runs exactly one of command, script, pipeline, approval.", "Keep one."),
    ("GF165", "Two kinds of GPU", "A step takes at most one of gpu, mig, shared_gpu, device_claim.", "Keep one, or make two steps."),
    ("GF166", "A field that does not belong here", "The field has no meaning in this kind of step.", "Move or remove it."),
    ("GF167", "Not a cron expression", "Cron has five fields: minute hour day month weekday. Seconds and macros beyond the usual ones are read differently by each engine.", 'For example "0 0 * * *" for midnight.'),
    ("GF168", "Not a time zone", "Time zones are IANA names.", "For example Europe/Berlin."),
    # The pipeline as a whole.
    ("GF170", "No steps", "A pipeline has at least one step.", "Add one."),
    ("GF171", "Two ways to start", "A pipeline starts by schedule or by new data.", "Keep one."),
    ("GF172", "Steps wait for each other", "Needs and references form a loop; the steps in it are named in order.", "Remove one of these needs or references."),
    ("GF173", "Not an output of the pipeline", "A pipeline's outputs are outputs of its steps.", "Write {output: step.name}."),
    ("GF174", "Not for this section", "Exit steps are single containers with `on`; ordinary steps have no `on`.", "Move the step, or drop the field."),
    ("GF175", "A reference to a step that is not upstream", "A step can use outputs of steps that have ended before it: not its own, not those of exit steps.", "Use an earlier step's output."),
    ("GF176", "No image", "Every container step needs an image, its own or the default.", "Set image, or defaults.image."),
    ("GF177", "A need that does not exist", "needs names a step that is not there.", "Use the suggested name."),
    ("GF178", "A parameter that does not exist", "The pipeline does not declare the parameter.", "Declare it, or use the suggested name."),
    ("GF179", "A fan-out item that does not exist", "{item: …} names a variable of the step's own for_each.", "Add it to for_each, or use the suggested name."),
    ("GF180", "An output of a step that does not exist", "The step is not there.", "Use the suggested name."),
    ("GF181", "An output that does not exist", "The step does not declare the output.", "Declare it under outputs, or use the suggested name."),
    ("GF182", "A fan-out over something that is not a list", "The parameter or output must be of type json and hold a list.", "Declare it with type: json."),
    ("GF183", "A claim that is not made", "new_claim names a claim of the pipeline's claims.", "Add it under claims."),
    ("GF184", "A path is mounted twice", "Two volumes stand at the same path.", "Keep one."),
    ("GF185", "Not an artifact", "inputs places files and directories of earlier steps.", "Pass values in the command or env."),
    ("GF186", "A store that would not last", "Checkpoints must be kept outside the pod.", "Use s3://, gs://, az://, or a path below one of the step's volumes."),
    ("GF187", "Not for a sub-pipeline", "Schedule, start by data, claims and exit steps belong to the outermost pipeline.", "Remove them from the sub-pipeline."),
    ("GF188", "Parameters of a sub-pipeline", "Every required parameter must be given, and no other names.", "Give them under params."),
    ("GF189", "An exit step uses an output that may be missing", "An exit step also runs when the other step failed, and then its output does not exist.", "Give the output a default."),
    ("GF190", "An output of a step that may be skipped", "The step has a condition, or is skipped with one that has. Who reads its output must say what then.", "Say if_skipped: skip on the reader, or give the output a default."),
    ("GF191", "A pipeline that is not open", "In Python, steps and parameters are added inside the first `with` block.", "Move the call into the block."),
    ("GF192", "A Python file failed", "Running the pipeline's file raised an error.", "Fix it at the place shown."),
    ("GF193", "Not exactly one pipeline in a Python file", "gpuflow takes the one Pipeline at the top level of the file.", "Leave exactly one, finished."),
    # GPUs and sites.
    ("GF201", "A GPU model that is not known", "Models are named as in the catalog; short names that mean several GPUs are refused with the candidates.", "gpuflow gpus list"),
    ("GF202", "A MIG profile that is not known", "The model has no such profile. The same name can mean another slice on another GPU.", "gpuflow gpus show MODEL"),
    ("GF203", "No GPU matches", "The filter leaves nothing.", "Loosen it."),
    ("GF211", "A site that runs as root", "The default pod satisfies the restricted standard, so the site's user is not 0.", "Use another user id; single steps may say run_as_root."),
    ("GF212", "A site that cannot be found", "The name is neither a preset nor a file, or sites extend each other in a circle.", "gpuflow site presets"),
    ("GF221", "The site does not know the GPU's nodes", "The site does not say which nodes have this model.", "Add it under gpu.models, or set gpu.product_label."),
    ("GF222", "A node label that cannot exist", "The label would have more than 63 characters, or a + in its value.", "Label these nodes in another way and list the model in the site."),
    ("GF223", "No GPU is large enough", "No model of the site has that much usable memory. Usable is less than the name says.", "Ask for less per GPU, or spread over several."),
    ("GF224", "The site has no MIG", "The site's MIG strategy is none.", "Use gpu or shared_gpu, or correct the site."),
    ("GF225", "The site does not share GPUs that way", "The site does not offer this kind of sharing.", "Use another kind, mig, or gpu."),
    ("GF226", "Too many shares", "More shares than the site gives to one container; two shares may be the same card.", "Ask for one share, or for whole GPUs."),
    ("GF227", "The site has no spot nodes", "spot: require needs to know what a spot node is.", "Set spot.labels in the site, or use spot: prefer."),
    ("GF228", "The site does not know the topology", "No label is given for this level.", "Set topology in the site."),
    # Targets.
    ("GF301", "The engine cannot say this", "A target never drops a field. What it cannot carry is refused, once per construct, with the steps that use it.", "Do what the hint says, or --allow-lossy to compile without it; the losses are then written into the artefact."),
    ("GF302", "A target that does not exist", "Known targets are airflow, argo and kubeflow.", "Use one of these."),
    ("GF303", "Compiled with a loss", "The artefact does not hold this construct, because --allow-lossy was given.", "Do what the hint says."),
    ("GF304", "Two artefacts with one name", "Two pipelines would be written to the same file.", "Give them different names."),
    ("GF305", "Carried in part", "The engine carries the construct, but not in full. The artefact is usable; the difference is said once.", "Read the sentence; nothing needs to be done."),
    ("GF306", "Text that the engine would change", "The engine replaces tags in this field, and there is no way to hide them there.", "Keep such text in commands, arguments, scripts or variables."),
    ("GF307", "The supervisor must be in the image", "Steps with outputs, a checkpoint or a counted interruption budget run under gpuflow-run, which this site expects in the image.", "Install gpuflow in the image, or set runtime.delivery: config-map in the site and apply what gpuflow site runtime prints."),
    # Cluster manifests.
    ("GF401", "No manifests", "The folder holds no .yaml or .json files.", "Name another folder."),
    ("GF402", "Not a manifest", "A manifest has apiVersion, kind and metadata.name.", "Is the file complete? kubectl get -o yaml writes whole ones."),
    ("GF403", "A manifest that cannot be read", "A value in it is not what Kubernetes allows there.", "Fix the manifest."),
    ("GF404", "An object stands twice", "Two manifests of a snapshot have the same kind, namespace and name; which one counts cannot be known.", "Keep one of them."),
    ("GF411", "No usable kubeconfig", "The Kubernetes client cannot load a configuration.", "Set KUBECONFIG, or name a context."),
    ("GF412", "The cluster does not answer", "The API server cannot be reached.", "Check the network and the context."),
    ("GF413", "A kind may not be listed", "The account may not list these objects. Without quotas and limit ranges no verdict is given.", "gpuflow snapshot --rbac prints the permissions that are needed."),
    # Verdicts.
    ("GF501", "Never: quota", "The API server refuses the step's pod even when nothing else runs in the namespace.", "Ask for less in this step, or have the quota raised."),
    ("GF502", "Never: LimitRange", "The step's pod breaks the namespace's LimitRange, whatever else runs.", "Stay within it, or have it changed."),
    ("GF503", "Never: invalid pod", "After defaulting, the pod is invalid (422). Usually a LimitRange fills in something that does not go with what the step asks for.", "Say the value in the step, or have the LimitRange changed."),
    ("GF504", "Never: Pod Security", "The namespace's Pod Security Standard forbids the pod.", "Drop what it forbids, or run in another namespace."),
    ("GF505", "Never: unknown class", "The PriorityClass or RuntimeClass does not exist, or the overhead differs from it.", "Use one that exists."),
    ("GF506", "Never: no node", "No node of the snapshot can hold the step, even when nothing else runs. The scheduler's own sentence says why.", "Ask for less, for another GPU or a smaller MIG slice, or add such nodes."),
    ("GF507", "Never: queue", "The step's Kueue queue can never admit it, or is stopped, missing or not for this namespace. Kueue's own sentence says why.", "Ask for less, use another queue, or ask its owner."),
    ("GF512", "May queue: quota", "Each step fits alone, but at the worst moment the pipeline asks for more than the quota leaves.", "Lower the parallelism to the number shown, or accept waiting; on engines that do not wait, the step fails."),
    ("GF513", "A LimitRange hands out GPUs", "In a LimitRange, max for a GPU becomes the default of every container that asks for none: init containers and sidecars too.", "Bound GPUs with a quota on requests.nvidia.com/gpu and drop the key from the LimitRange."),
    ("GF514", "Unknown demand", "How many copies run is only known at run time, so the worst moment is not bounded.", "Give the fan-out a parallel cap."),
    ("GF521", "A quota key that does nothing", "Kubernetes accepts nvidia.com/gpu and limits.nvidia.com/gpu in a quota and never enforces them.", "Use requests.nvidia.com/gpu."),
    ("GF531", "Kinds that are not judged", "The snapshot holds objects that may hold pods back and that gpuflow does not model yet. It says unknown rather than always.", "Read the verdict as one about the kinds that are judged."),
    ("GF532", "A quota without status", "A manifest from Git says what is allowed, not what is in use.", "Take a snapshot of the live cluster."),
    ("GF533", "Another namespace", "The snapshot holds objects of other namespaces and none of the one that is asked about, so nothing can be said.", "Check the spelling, or take a snapshot of the namespace."),
    ("GF534", "A quota that limits nothing", "A ResourceQuota without hard is accepted by Kubernetes and does nothing; usually the key is misspelt.", "Correct the manifest."),
    ("GF541", "No time for a last checkpoint", "The step says how long it needs to save when it is told to stop. The pod's grace period, or the notice a spot node gives, is shorter: a last checkpoint would be cut off.", "Raise termination_grace, save more often, or do not run on spot."),
    ("GF542", "Queued without an interruption budget", "Kueue preempts a pod by deleting it and does not make it again; without a budget for interruptions no engine starts the step again.", "Give it retry: {interruptions: N}."),
    # Surroundings.
    ("GF901", "A package is missing", "Each engine's SDK is an extra, because they exclude each other.", "Run the install command shown."),
    ("GF902", "Not a command", "gpuflow has no such command.", "gpuflow --help"),
    ("GF903", "An option that cannot be used so", "The option's value, or the combination, makes no sense.", "See the command's --help."),
    ("GF904", "No namespace", "Admission is per namespace, so the command must know it.", "Use --namespace, or set namespace in the site."),
    ("GF905", "Not a code", "gpuflow has no such code.", "gpuflow explain lists them."),
    ("GF906", "A file cannot be written", "The place may not be written to.", "Check the path and its permissions."),
    ("GF907", "Files are already there", "init does not overwrite.", "Choose another folder, or --force."),
    ("GF908", "Nothing to compare with", "--compare takes another file, or a Git revision in which the pipeline exists.", "Name a file, or a revision such as HEAD~1."),
    ("GF999", "A fault of gpuflow", "Something happened that gpuflow does not expect.", "Run again with GPUFLOW_TRACEBACK=1 and report what it prints."),
)  # fmt: skip

CODES: dict[str, Code] = {row[0]: Code(*row) for row in _ROWS}
