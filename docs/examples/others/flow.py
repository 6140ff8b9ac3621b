# A Hera workflow.
from hera.workflows import DAG, Container, Resources, Workflow

with Workflow(generate_name="flow-", entrypoint="main") as w:
    train = Container(name="train", image="registry.example.com/nlp/train:1.4", resources=Resources(gpus=2))
    with DAG(name="main"):
        train(name="first") >> train(name="second")
