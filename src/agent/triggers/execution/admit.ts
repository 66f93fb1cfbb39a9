import { InputError } from "../../../errors.ts";
import type { NodeState, NodeType } from "../../../protocol/values/values.ts";
import type { Trigger } from "./trigger.ts";

/** State that decides which events this node answers. */
export interface NodeFacts {
  readonly type: NodeType;
  readonly state: NodeState;
}

/** A running trigger, with the fields that limits use. */
export interface Running {
  readonly event: string;
  readonly exclusive: string | undefined;
  /** True if it may run so long that it must not block others. */
  readonly isLasting: boolean;
}

export const MAX_RUNNING = 8;
export const MAX_RUNNING_PER_EVENT = 2;

/** Returns why a trigger cannot run, or undefined: `not-supported`, `inactive` or `busy`. */
export function refusal(trigger: Trigger, node: NodeFacts, running: readonly Running[]): InputError | undefined {
  const { event, exclusive } = trigger;
  if (node.type === "Agent" && !trigger.agents) {
    return new InputError("not-supported", `${event} is for appliances; this node is an agent`);
  }
  if (node.state === "INACTIVE" && trigger.needsDataPlane) {
    return new InputError("inactive", `${event} needs the data plane, and the node is INACTIVE`);
  }
  const holder = exclusive === undefined ? undefined : running.find((other) => other.exclusive === exclusive);
  if (holder !== undefined) {
    return new InputError("busy", `${event} cannot start while ${holder.event} is running`, {
      details: { running: holder.event },
    });
  }
  const atOnce = trigger.atOnce ?? MAX_RUNNING_PER_EVENT;
  if (running.filter((other) => other.event === event).length >= atOnce) {
    return new InputError("busy", `${atOnce} of ${event} are running`);
  }
  const isLasting = trigger.watchedMs !== undefined;
  if (running.filter((other) => other.isLasting === isLasting).length >= MAX_RUNNING) {
    return new InputError("busy", `${MAX_RUNNING} triggers are running`);
  }
  return undefined;
}
