import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { NodeMethods } from "../../protocol/methods.ts";
import type { Handlers } from "../../protocol/rpc.ts";
import { applyReport } from "../model/shadow.ts";
import type { Store } from "../store/store.ts";
import type { Documents } from "./documents.ts";
import { refuseWhileHeld } from "./held-identity.ts";
import type { NodeSession } from "./session.ts";
import type { TelemetryIntake } from "./telemetry-intake.ts";
import type { Tickets } from "./tickets.ts";
import type { Triggers } from "./triggers.ts";

export interface NodeMethodsDeps {
  readonly store: Store;
  readonly documents: Documents;
  readonly tickets: Tickets;
  readonly triggers: Triggers;
  readonly telemetry: TelemetryIntake;
  readonly clock: Clock;
}

/**
 * What a node may call in its session. The node is always the session's, whatever a message says. Made anew for each call,
 * so what must last lives in the session.
 */
export function nodeHandlers(deps: NodeMethodsDeps, session: NodeSession): Handlers<NodeMethods> {
  const { store, documents, tickets, triggers, telemetry, clock } = deps;
  const { uid, sid } = session;
  return {
    heartbeat(heartbeat) {
      session.heartbeat = { ...heartbeat, receivedAt: clock.now() };
    },
    "shadow.report": (report) =>
      store.atomic(() => {
        const stored = store.nodes.reported(uid);
        if (stored === undefined) throw new InputError("not-found", `no node ${uid}`);
        const next = applyReport(stored, report);
        store.nodes.setReported(uid, next);
        return { version: next.version };
      }),
    "document.get"({ name, have }) {
      refuseWhileHeld(store, uid);
      // Once is enough for an honest node, and one that counts on and on must not take us along.
      if (session.followed?.has(name) !== true) {
        const before = documents.versions(uid);
        if (have > before[name]) session.followed = new Set(session.followed).add(name);
        documents.follow(uid, { ...before, [name]: have });
      }
      const version = documents.versions(uid)[name];
      if (version === 0) throw new InputError("not-found", `node ${uid} has no ${name} document`);
      if (have === version || (name === "keys" && have > version)) return { version, unchanged: true as const };
      return { version, ticket: tickets.issue({ uid, sid, name, have }) };
    },
    "document.applied"(report) {
      if (store.nodes.placement(uid) !== undefined) store.documents.setApplied(uid, report);
      return {};
    },
    "trigger.progress": ({ id, ...progress }) => triggers.progress(uid, id, progress),
    "trigger.result"(result) {
      triggers.result(uid, result);
      return {};
    },
    "telemetry.push": (push) => ({ last: telemetry.take(uid, push) }),
    "registry.token"() {
      refuseWhileHeld(store, uid);
      throw new InputError("not-configured", "this control plane has no registry");
    },
  };
}
