import type { Clock } from "../../../host/clock.ts";
import type { DocumentName, DocumentVersions } from "../../../protocol/documents/claims.ts";
import { signJws } from "../../../protocol/channel/jws.ts";
import { JsonObject } from "../../../protocol/values/values.ts";
import type { EventLog } from "../../events/service.ts";
import { sha256 } from "../../access/admin-key.ts";
import type { ControlKeys } from "../keys/control-keys.ts";
import { type SpeedTestTokens, SPEED_TEST_PATH } from "../keys/speed-test-tokens.ts";
import { clusterDocument, judgeHave, nextVersion, nodeDocument } from "./versions.ts";
import type { DocumentId } from "./store.ts";
import type { Atomic } from "../../store/atomic.ts";
import type { ClusterStore } from "../../clusters/store.ts";
import type { DocumentStore } from "./store.ts";
import type { MeshStore } from "./mesh-store.ts";
import type { NodeStore } from "../../nodes/store.ts";
import { neighbours as neighboursOf } from "./neighbours.ts";

/** Desired documents of all nodes: their versions and signed form. */
export interface Documents {
  /**
   * Rebuilds the documents of these nodes and of nodes that depend on them, and increments the version of each one that changed. Returns
   * the changed names by UID. `uids` may include new and deleted nodes.
   */
  refresh(uids: Iterable<string>): ReadonlyMap<string, readonly DocumentName[]>;
  /** Returns the versions a node should hold; 0 for a missing document. */
  versions(uid: string): DocumentVersions;
  /** Raises versions above those that a node holds but we never issued, as after a restored backup. Returns the changed documents. */
  follow(uid: string, have: DocumentVersions): readonly DocumentName[];
  /** Returns the latest version as a JWS, signed on first use; undefined if the node has no such document. */
  signed(uid: string, name: DocumentName): Promise<string | undefined>;
}

export interface DocumentsDeps {
  readonly speedTestTokens: SpeedTestTokens;
  readonly store: Atomic & {
    readonly clusters: ClusterStore;
    readonly documents: DocumentStore;
    readonly mesh: MeshStore;
    readonly nodes: NodeStore;
  };
  readonly events: EventLog;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly origin: string;
  /** Host of the registry in image references. */
  readonly registryHost: string | undefined;
}

/** Minimum interval between events of one node's document, in milliseconds, and the limit of remembered ones. */
const RESTORED_EVENT_MS = 10 * 60_000;
const MAX_REMEMBERED = 50_000;

const NAMES: readonly DocumentName[] = ["node", "cluster", "domain"];

export function documents({
  store,
  events,
  keys,
  speedTestTokens,
  clock,
  origin,
  registryHost,
}: DocumentsDeps): Documents {
  const neighbours = neighboursOf(store);
  const seal = `${keys.signing.kid} ${origin}`;

  const idOf = (uid: string, name: DocumentName): DocumentId | undefined => {
    const placement = store.nodes.placement(uid);
    const sub = { node: uid, cluster: placement?.cluster, domain: placement?.domain }[name];
    return placement === undefined || sub === undefined ? undefined : { node: uid, name, sub };
  };

  const registryOf = (namespace: string) =>
    registryHost === undefined ? undefined : { host: registryHost, namespace };

  /** Builds the documents of a node that depend on its own row and its cluster's. */
  const build = (uid: string): readonly (readonly [DocumentName, JsonObject])[] => {
    const node = store.nodes.get(uid);
    if (node === undefined) return [];
    const cluster = node.cluster === undefined ? undefined : store.clusters.get(node.cluster);
    const own = ["node", nodeDocument(node, {}, registryOf(node.domain))] as const;
    return cluster === undefined ? [own] : [own, ["cluster", clusterDocument(cluster, node)]];
  };

  /** Returns secret fields, which are not stored: they count for the version and are added on signing. */
  const secretsOf = (uid: string, name: DocumentName): JsonObject =>
    name === "node" ? { settings: { speedTestUrl: `${origin}${SPEED_TEST_PATH}/${speedTestTokens.of(uid)}` } } : {};

  const versionOf = (uid: string, name: DocumentName): number => {
    const id = idOf(uid, name);
    return (id === undefined ? undefined : store.documents.get(id)?.version) ?? 0;
  };

  const refreshOne = (uid: string, name: DocumentName, content: JsonObject): boolean => {
    const id = idOf(uid, name);
    if (id === undefined) return false;
    const body = JSON.stringify(content);
    const hash = sha256(body + JSON.stringify(secretsOf(uid, name)));
    const version = nextVersion(store.documents.get(id), hash, store.documents.highest(uid, name));
    if (version !== undefined) store.documents.put(id, { version, hash, body });
    return version !== undefined;
  };

  /** Latest report of each node and document: limits the events that a node can cause. */
  const reported = new Map<string, { readonly have: number; readonly at: number }>();
  const shouldReport = (uid: string, name: string, have: number): boolean => {
    const key = `${uid} ${name}`;
    const last = reported.get(key);
    const now = clock.elapsed();
    if (last !== undefined && (last.have === have || now - last.at < RESTORED_EVENT_MS)) return false;
    reported.delete(key);
    const [oldest] = reported.keys();
    if (oldest !== undefined && reported.size >= MAX_REMEMBERED) reported.delete(oldest);
    reported.set(key, { have, at: now });
    return true;
  };

  const followOne = (uid: string, name: DocumentName, have: number): boolean => {
    const id = idOf(uid, name);
    const stored = id === undefined ? undefined : store.documents.get(id);
    const node = store.nodes.label(uid);
    if (id === undefined || stored === undefined || node === undefined) return false;
    const verdict = judgeHave(stored.version, have);
    if (verdict === "fine") return false;
    const isFollowed = verdict === "restored";
    if (isFollowed) store.documents.put(id, { ...stored, version: have + 1 });
    if (!shouldReport(uid, name, have)) return isFollowed;
    events.record(node, {
      eventType: "Control Plane Restored",
      level: "WARNING",
      message: isFollowed
        ? `Node has version ${have} of its ${name} document, newer than ${stored.version} here; continuing with version ${have + 1}`
        : `Node has version ${have} of its ${name} document, too far above ${stored.version} here; it is ignored`,
      details: { document: name, have, stored: stored.version, followed: isFollowed },
    });
    return isFollowed;
  };

  /** Reports a keys document newer than ours. Only root issues its versions, so it cannot be followed. */
  const reportKeysAhead = (uid: string, have: number): void => {
    const stored = keys.newest.version;
    const node = have > stored ? store.nodes.label(uid) : undefined;
    if (node === undefined || !shouldReport(uid, "keys", have)) return;
    events.record(node, {
      eventType: "Control Plane Restored",
      level: "WARNING",
      message: `Node has version ${have} of the keys document, newer than ${stored} here; only the root key can issue a newer one`,
      details: { document: "keys", have, stored, followed: false },
    });
  };

  return {
    refresh: (uids) =>
      store.atomic(() => {
        const changed = new Map<string, DocumentName[]>();
        const refresh = (uid: string, name: DocumentName, content: JsonObject): void => {
          if (refreshOne(uid, name, content)) changed.set(uid, [...(changed.get(uid) ?? []), name]);
        };
        const unique = new Set(uids);
        for (const uid of unique) for (const [name, content] of build(uid)) refresh(uid, name, content);
        for (const [uid, content] of neighbours.changed(unique)) refresh(uid, "domain", content);
        return changed;
      }),
    versions: (uid) => ({
      keys: keys.newest.version,
      node: versionOf(uid, "node"),
      cluster: versionOf(uid, "cluster"),
      domain: versionOf(uid, "domain"),
    }),
    follow: (uid, have) =>
      store.atomic(() => {
        reportKeysAhead(uid, have.keys);
        return NAMES.filter((name) => followOne(uid, name, have[name]));
      }),
    async signed(uid, name) {
      const id = idOf(uid, name);
      const stored = id === undefined ? undefined : store.documents.get(id);
      if (id === undefined || stored === undefined) return undefined;
      if (stored.jws !== undefined && stored.seal === seal) return stored.jws;
      const secrets = secretsOf(uid, name);
      const body = { ...JsonObject.parse(JSON.parse(stored.body)), ...secrets };
      const iat = Math.floor(clock.now() / 1000);
      const claims = { iss: origin, aud: uid, name, sub: id.sub, version: stored.version, iat, body };
      const jws = await signJws("holdfast-document+jwt", claims, keys.signing);
      if (Object.keys(secrets).length === 0) store.documents.setJws(id, stored.version, jws, seal);
      return jws;
    },
  };
}
