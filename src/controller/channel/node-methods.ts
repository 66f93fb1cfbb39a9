import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { NodeMethods } from "../../protocol/channel/methods.ts";
import type { Handlers } from "../../protocol/channel/rpc.ts";
import type { VolumeKeys } from "./keys/volume-keys.ts";
import { hasEncryptedVolume, repositoryName, usesRepository } from "../containers/used-repositories.ts";
import { applyReport } from "../nodes/shadow.ts";
import type { RegistryTokens } from "../registry/registry-tokens.ts";
import type { Atomic } from "../store/atomic.ts";
import type { ClusterStore } from "../clusters/store.ts";
import type { DocumentStore } from "./documents/store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { Documents } from "./documents/documents.ts";
import { refuseFrom, refuseWhileHeld } from "../nodes/held-identity.ts";
import type { NodeSession } from "./session.ts";
import type { TelemetryIntake } from "./telemetry-intake.ts";
import type { Tickets } from "./tickets.ts";
import type { Triggers } from "./triggers.ts";

type Tables = Atomic & {
  readonly clusters: ClusterStore;
  readonly documents: DocumentStore;
  readonly nodes: NodeStore;
};

export interface NodeMethodsDeps {
  readonly store: Tables;
  readonly documents: Documents;
  readonly tickets: Tickets;
  readonly triggers: Triggers;
  readonly telemetry: TelemetryIntake;
  readonly clock: Clock;
  /** Both are undefined without a registry. */
  readonly registryTokens: RegistryTokens | undefined;
  readonly registryHost: string | undefined;
  readonly volumeKeys: VolumeKeys;
}

/**
 * Returns the methods that a node may call in its session. The caller is always the session's node. Created for each call, so lasting state
 * belongs to the session.
 */
export function nodeHandlers(deps: NodeMethodsDeps, session: NodeSession): Handlers<NodeMethods> {
  const { store, documents, tickets, triggers, telemetry, clock, registryTokens, registryHost, volumeKeys } = deps;
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
      // Once is enough for an honest node; a node that keeps counting must not exhaust our versions.
      if (session.followed?.has(name) !== true) {
        const before = documents.versions(uid);
        if (have > before[name]) (session.followed ??= new Set()).add(name);
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
    "telemetry.push"(push) {
      session.spend(push.records.length / RECORDS_PER_MESSAGE);
      return { last: telemetry.take(uid, push) };
    },
    "registry.token"({ repository: named }) {
      refuseWhileHeld(store, uid);
      refuseFrom(store, uid, session.address);
      if (registryTokens === undefined) throw new InputError("not-configured", "this control plane has no registry");
      const repository = repositoryName(named, registryHost ?? "");
      // Only images that the node runs: a compromised node must not read others.
      if (!usesRepository(containersOf(store, uid), repository, registryHost ?? "")) {
        throw new InputError("not-found", `no container of this node has an image of ${repository}`);
      }
      return registryTokens.credential(uid, repository);
    },
    "volume.key"({ volume }) {
      refuseWhileHeld(store, uid);
      refuseFrom(store, uid, session.address);
      if (!hasEncryptedVolume(containersOf(store, uid), volume)) {
        throw new InputError("not-found", `this node has no encrypted volume ${volume}`);
      }
      return { key: volumeKeys.of(uid, volume) };
    },
  };
}

/** A record costs as much work as a message, and hundreds of invalid ones fit in a few bytes. */
const RECORDS_PER_MESSAGE = 25;

/** Returns the `exec` section that a node applies: its cluster's, if there is one. */
function containersOf(store: Tables, uid: string): unknown {
  const node = store.nodes.get(uid);
  const cluster = node?.cluster === undefined ? undefined : store.clusters.get(node.cluster);
  return cluster?.config["exec"] ?? node?.config["exec"];
}
