import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import type { NodeMethods } from "../../protocol/channel/methods.ts";
import type { Handlers } from "../../protocol/channel/rpc.ts";
import type { VolumeKeys } from "./keys/volume-keys.ts";
import { hasEncryptedVolume, repositoryName, usesRepository } from "../containers/used-repositories.ts";
import { applyReport } from "../nodes/shadow.ts";
import type { RegistryTokens } from "../registry/registry-tokens.ts";
import type { Transact } from "../store/transact.ts";
import type { ClusterStore } from "../clusters/store.ts";
import type { DocumentStore } from "./documents/store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { Documents } from "./documents/documents.ts";
import { refuseFrom, refuseWhileHeld } from "../nodes/held-identity.ts";
import type { NodeSession } from "./session.ts";
import type { TelemetryIntake } from "./telemetry-intake.ts";
import type { Tickets } from "./tickets.ts";
import type { Triggers } from "./triggers.ts";

/** Stores of an open transaction that stores what a node reports. */
export interface ReportParts {
  readonly documents: Pick<DocumentStore, "setApplied">;
  readonly nodes: Pick<NodeStore, "reported" | "setReported" | "placement">;
}

type Tables = Transact<ReportParts> & {
  readonly clusters: Pick<ClusterStore, "get">;
  readonly nodes: Pick<NodeStore, "get" | "credentials">;
};

export interface NodeMethodsDeps {
  readonly store: Tables;
  readonly documents: Documents;
  readonly tickets: Tickets;
  readonly triggers: Triggers;
  readonly telemetry: TelemetryIntake;
  /** Work on one node at a time. */
  readonly turns: Pick<KeyedQueue, "run" | "count">;
  readonly clock: Clock;
  /** Both are undefined without a registry. */
  readonly registryTokens: RegistryTokens | undefined;
  readonly registryHost: string | undefined;
  readonly volumeKeys: VolumeKeys;
}

/** Calls of one node that wait for their turn; beyond it they are refused. Honest nodes wait for most answers. */
const MAX_WAITING = 128;

/**
 * Returns the methods that a node may call in its session. The caller is always the session's node. Created for each call, so lasting state
 * belongs to the session. Calls that use the store take turns, so that they take effect in the order in which they arrived.
 */
export function nodeHandlers(deps: NodeMethodsDeps, session: NodeSession): Handlers<NodeMethods> {
  const { store, documents, tickets, triggers, telemetry, clock, registryTokens, registryHost, volumeKeys } = deps;
  const { uid, sid } = session;
  const inTurn = async <T>(work: () => Promise<T>): Promise<T> => {
    if (deps.turns.count(uid) < MAX_WAITING) return deps.turns.run(uid, work);
    throw new InputError("busy", `${MAX_WAITING} calls of this node are waiting; try again later`);
  };
  return {
    heartbeat(heartbeat) {
      session.heartbeat = { ...heartbeat, receivedAt: clock.now() };
    },
    "shadow.report": (report) =>
      inTurn(() =>
        store.transact(async (tx) => {
          const stored = await tx.nodes.reported(uid);
          if (stored === undefined) throw new InputError("not-found", `no node ${uid}`);
          const next = applyReport(stored, report);
          await tx.nodes.setReported(uid, next);
          return { version: next.version };
        }),
      ),
    "document.get": ({ name, have }) =>
      inTurn(async () => {
        await refuseWhileHeld(store, uid);
        let versions = await documents.versions(uid);
        // Once is enough for an honest node; a node that keeps counting must not exhaust our versions.
        if (have > versions[name] && session.followed?.has(name) !== true) {
          await documents.follow(uid, { ...versions, [name]: have });
          (session.followed ??= new Set()).add(name);
          versions = await documents.versions(uid);
        }
        const version = versions[name];
        if (version === 0) throw new InputError("not-found", `node ${uid} has no ${name} document`);
        if (have === version || (name === "keys" && have > version)) return { version, unchanged: true as const };
        return { version, ticket: tickets.issue({ uid, sid, name, have }) };
      }),
    "document.applied": (report) =>
      inTurn(async () => {
        await store.transact(async (tx) => {
          if ((await tx.nodes.placement(uid)) !== undefined) await tx.documents.setApplied(uid, report);
        });
        return {};
      }),
    "trigger.progress": ({ id, ...progress }) => triggers.progress(uid, id, progress),
    "trigger.result": (result) =>
      inTurn(async () => {
        await triggers.result(uid, result);
        return {};
      }),
    "telemetry.push"(push) {
      session.spend(push.records.length / RECORDS_PER_MESSAGE);
      return inTurn(async () => ({ last: await telemetry.take(uid, push) }));
    },
    "registry.token": ({ repository: named }) =>
      inTurn(async () => {
        await refuseWhileHeld(store, uid);
        await refuseFrom(store, uid, session.address);
        if (registryTokens === undefined) throw new InputError("not-configured", "this control plane has no registry");
        const repository = repositoryName(named, registryHost ?? "");
        // Only images that the node runs: a compromised node must not read others.
        if (!usesRepository(await containersOf(store, uid), repository, registryHost ?? "")) {
          throw new InputError("not-found", `no container of this node has an image of ${repository}`);
        }
        return registryTokens.credential(uid, repository);
      }),
    "volume.key": ({ volume }) =>
      inTurn(async () => {
        await refuseWhileHeld(store, uid);
        await refuseFrom(store, uid, session.address);
        if (!hasEncryptedVolume(await containersOf(store, uid), volume)) {
          throw new InputError("not-found", `this node has no encrypted volume ${volume}`);
        }
        return { key: volumeKeys.of(uid, volume) };
      }),
  };
}

/** A record costs as much work as a message, and hundreds of invalid ones fit in a few bytes. */
export const RECORDS_PER_MESSAGE = 25;

/** Returns the `exec` section that a node applies: its cluster's, if there is one. */
async function containersOf(store: Tables, uid: string): Promise<unknown> {
  const node = await store.nodes.get(uid);
  const cluster = node?.cluster === undefined ? undefined : await store.clusters.get(node.cluster);
  return cluster?.config["exec"] ?? node?.config["exec"];
}
