import type { NodeType } from "../protocol/values/values.ts";
import type { Desired } from "./shadow/desired.ts";
import type { NodeFacts } from "./triggers/execution/admit.ts";

/** The kind of install: an appliance of its own, or a program on a machine of somebody else. */
export type Profile = "appliance" | "agent";

/** Returns the type of the node: an install as an agent is one, regardless of the control plane's record. */
export function typeHere(profile: Profile, type: NodeType | undefined): NodeType {
  return profile === "agent" ? "Agent" : (type ?? "Node");
}

/** Returns why an install as an agent does not act as an appliance; undefined for an appliance. */
export function unsupportedHere(profile: Profile): string | undefined {
  return profile === "agent"
    ? 'installed as an agent ("profile" in agent.json): network and containers are left to the machine'
    : undefined;
}

/** Returns the facts that decide which triggers are answered. */
export function nodeFacts(
  profile: Profile,
  documents: { readonly current: Pick<Desired, "node"> },
  registered: () => NodeType | undefined,
): () => NodeFacts {
  return () => {
    const body = documents.current.node?.body;
    return { type: typeHere(profile, body?.type ?? registered()), state: body?.state ?? "ACTIVE" };
  };
}
