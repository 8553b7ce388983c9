"""The runner of tasks in an instance, and the configuration of workers."""

from typing import Annotated, ClassVar, Literal

from rota.api.egress import Network
from rota.api.field_rules import image, program
from rota.api.model import LIST_ITEMS_MAX, JSONObject, Model, Ref, Rule, Text, doc
from rota.api.parts import EGRESS, NETWORK, Argv, Env, Isolation, Resources, Targets


class Credentials(Model):
    """Credentials of an agent, read anew for each task."""

    rules = (
        Rule("self.type == 'none' || has(self.secretRef)", "secretRef is required unless type is none"),
        Rule("self.type != 'none' || !has(self.secretRef)", "secretRef must not be set when type is none"),
    )
    type: Annotated[Literal["api-key", "oauth", "none"], doc("Kind of the credentials.")]
    secret_ref: Annotated[Ref | None, doc("Secret that has the credentials.", refers="Secret")] = None


AGENT_TYPES = ("claude-code", "codex", "custom")
"""Types of workers that take prompts."""


class WorkerRole(Model):
    """Runner of tasks in an instance."""

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
    type: Annotated[
        Literal["shell", "python", "claude-code", "codex", "custom"], doc("Program that executes tasks.")
    ] = "shell"
    entrypoint: Annotated[
        Argv, doc("Program of a custom worker, and its first arguments.", min_length=1, max_length=LIST_ITEMS_MAX)
    ] = []
    credentials: Annotated[Credentials | None, doc("Credentials of the agent.")] = None
    model: Annotated[Text | None, doc("Model of the agent.")] = None
    effort: Annotated[Text | None, doc("Reasoning effort of the agent.")] = None
    agent_config_refs: Annotated[
        list[Ref],
        doc(
            "AgentConfigs of the agent, in order. Of two servers or skills of one name the later wins.",
            max_length=16,
            refers="AgentConfig",
        ),
    ] = []


class WorkerConfig(WorkerRole):
    """Configuration of a worker."""

    rules = (*WorkerRole.rules, image("image"), EGRESS)
    image: Annotated[Text | None, doc("Image of the worker, if the runtime needs one.")] = None
    workspace_ref: Annotated[Ref | None, doc("Workspace that the worker is prepared with.", refers="Workspace")] = None
    env: Env = []
    resources: Annotated[Resources | None, doc("Resource requests and limits of the worker.")] = None
    isolation: Annotated[
        Isolation | None,
        doc(
            "Isolation of the worker. Omitted: sandbox, if the host supports it; an explicit sandbox is never left out."
        ),
    ] = None
    network: Annotated[Network | None, NETWORK] = None
    egress: Targets = []
    pod_overrides: Annotated[
        JSONObject | None, doc("Fields merged into the worker's Pod, on a cluster.", atomic=True)
    ] = None
