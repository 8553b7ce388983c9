"""What a worker is: what runs tasks in an instance, and all that is said of the instance along with it."""

from typing import Annotated, ClassVar, Literal

from rota.api.egress import Network
from rota.api.model import LIST_ITEMS_MAX, JSONObject, Model, Ref, Rule, Text, doc
from rota.api.parts import EGRESS, NETWORK, Argv, Env, Isolation, Resources, Targets
from rota.api.texts import image, program


class Credentials(Model):
    """What an agent signs in with; read anew for each task."""

    rules = (
        Rule("self.type == 'none' || has(self.secretRef)", "secretRef is required unless type is none"),
        Rule("self.type != 'none' || !has(self.secretRef)", "secretRef must not be set when type is none"),
    )
    type: Annotated[Literal["api-key", "oauth", "none"], doc("How it signs in.")]
    secret_ref: Annotated[Ref | None, doc("The Secret that holds them.", refers="Secret")] = None


AGENT_TYPES = ("claude-code", "codex", "custom")
"""Types of workers that take prompts."""


class WorkerRole(Model):
    """What runs tasks in an instance."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("(self.type == 'custom') == has(self.entrypoint)", "entrypoint is for type custom, and required there"),
        program("entrypoint"),
        *(
            Rule(
                f"!has(self.{name}) || self.type in {list(AGENT_TYPES)}",
                f"{name} is for agents, which have the type {', '.join(AGENT_TYPES)}",
                name,
            )
            for name in ("model", "effort")
        ),
        *(
            Rule(
                f"!has(self.{name}) || self.{name}.matches(r'^[A-Za-z0-9][A-Za-z0-9_.:/@+-]*$')",
                f"{name} must be a name: letters, digits and - _ . : / @ +, with a letter or digit first",
                name,
            )
            for name in ("model", "effort")
        ),
    )
    type: Annotated[Literal["shell", "python", "claude-code", "codex", "custom"], doc("What executes a task.")] = (
        "shell"
    )
    entrypoint: Annotated[Argv, doc("The program of a custom worker.", min_length=1, max_length=LIST_ITEMS_MAX)] = []
    credentials: Annotated[Credentials | None, doc("What an agent signs in with.")] = None
    model: Annotated[Text | None, doc("The model that an agent uses.")] = None
    effort: Annotated[Text | None, doc("How hard an agent tries.")] = None
    agent_config_refs: Annotated[
        list[Ref], doc("What its agent gets; the last of a name wins.", max_length=16, refers="AgentConfig")
    ] = []


class WorkerConfig(WorkerRole):
    """What a worker is and runs tasks with."""

    rules = (*WorkerRole.rules, image("image"), EGRESS)
    image: Annotated[Text | None, doc("The image, where the runtime needs one.")] = None
    workspace_ref: Annotated[Ref | None, doc("The workspace it is prepared with.", refers="Workspace")] = None
    env: Env = []
    resources: Annotated[Resources | None, doc("What it is promised and may use.")] = None
    isolation: Annotated[
        Isolation | None, doc("Sandboxed or not. Omitted: as the host can; an explicit sandbox fails closed.")
    ] = None
    network: Annotated[Network | None, NETWORK] = None
    egress: Targets = []
    pod_overrides: Annotated[JSONObject | None, doc("Merged into the Pod, where there is one.", atomic=True)] = None
