import type { Clock } from "../../../host/clock.ts";
import type { DocumentName, DocumentVersions } from "../../../protocol/documents/claims.ts";
import { signJws } from "../../../protocol/channel/jws.ts";
import { JsonObject } from "../../../protocol/values/values.ts";
import { sha256 } from "../../access/admin-key.ts";
import type { ClusterRecord } from "../../clusters/records.ts";
import type { ClusterStore } from "../../clusters/store.ts";
import type { EventLog, EventParts } from "../../events/service.ts";
import type { NodeStore } from "../../nodes/store.ts";
import type { Transact } from "../../store/transact.ts";
import type { ControlKeys } from "../keys/control-keys.ts";
import { type SpeedTestTokens, SPEED_TEST_PATH } from "../keys/speed-test-tokens.ts";
import { neighbours as neighboursOf, type NeighbourParts } from "./neighbours.ts";
import type { DocumentId, DocumentStore } from "./store.ts";
import { clusterDocument, judgeHave, nodeDocument } from "./versions.ts";

/** Stores that documents are built from and kept in. */
export interface DocumentParts extends NeighbourParts {
  readonly clusters: Pick<ClusterStore, "get">;
  readonly documents: Pick<DocumentStore, "get" | "hashes" | "put">;
  readonly nodes: Pick<NodeStore, "contents" | "placement" | "label">;
}

/** Desired documents of all nodes: their versions and signed form. */
export interface Documents {
  /**
   * Rebuilds the documents of these nodes and of nodes that depend on them, and increments the version of each one that changed. Returns
   * the changed names by UID. `uids` may include new and deleted nodes.
   */
  refresh(tx: DocumentParts, uids: Iterable<string>): Promise<ReadonlyMap<string, readonly DocumentName[]>>;
  /** Returns the versions a node should hold; 0 for a missing document. */
  versions(uid: string): Promise<DocumentVersions>;
  /** Raises versions above those that a node holds but we never issued, as after a restored backup. Returns the changed documents. */
  follow(uid: string, have: DocumentVersions): Promise<readonly DocumentName[]>;
  /** Returns the latest version as a JWS, signed on first use; undefined if the node has no such document. */
  signed(uid: string, name: DocumentName): Promise<string | undefined>;
}

export interface DocumentsDeps {
  readonly speedTestTokens: SpeedTestTokens;
  readonly store: Transact<DocumentParts & EventParts> & {
    readonly documents: Pick<DocumentStore, "get" | "setJws" | "versions">;
    readonly nodes: Pick<NodeStore, "placement">;
  };
  readonly events: Pick<EventLog, "record">;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly origin: string;
  /** Host of the registry in image references. */
  readonly registryHost: string | undefined;
}

/** Minimum interval between events of one node's document, in milliseconds, and the limit of remembered ones. */
const RESTORED_EVENT_MS = 10 * 60_000;
const MAX_REMEMBERED = 50_000;

/** Nodes that are read together, and documents that are compared together. */
const GROUP = 500;

const NAMES: readonly DocumentName[] = ["node", "cluster", "domain"];

type Content = readonly [id: DocumentId, body: JsonObject];

/** Verdict about a document of which a node holds a newer version; `isReported` if an event was recorded. */
interface Followed {
  readonly name: DocumentName | "keys";
  readonly isFollowed: boolean;
  readonly isReported: boolean;
}

interface Lookup {
  readonly documents: Pick<DocumentStore, "get">;
  readonly nodes: Pick<NodeStore, "placement">;
}

export function documents({
  store,
  events,
  keys,
  speedTestTokens,
  clock,
  origin,
  registryHost,
}: DocumentsDeps): Documents {
  const neighbours = neighboursOf();
  const seal = `${keys.signing.kid} ${origin}`;

  const registryOf = (namespace: string) =>
    registryHost === undefined ? undefined : { host: registryHost, namespace };

  /** Builds the documents of nodes that depend on their own rows and their clusters', and those that depend on each other. */
  async function* contentsOf(tx: DocumentParts, uids: ReadonlySet<string>): AsyncIterable<Content> {
    for (const some of groups(uids)) yield* await build(tx, some);
    for (const [node, content] of await neighbours.changed(tx, uids)) {
      yield [{ node, name: "domain", sub: content.fqdn }, content];
    }
  }

  /** Builds the documents of nodes that depend on their own rows and their clusters'. */
  const build = async (tx: DocumentParts, uids: readonly string[]): Promise<readonly Content[]> => {
    const clusters = new Map<string, ClusterRecord | undefined>();
    const built: Content[] = [];
    for (const node of await tx.nodes.contents(uids)) {
      const { uid, cluster: fqdn } = node;
      built.push([{ node: uid, name: "node", sub: uid }, nodeDocument(node, {}, registryOf(node.domain))]);
      if (fqdn === undefined) continue;
      if (!clusters.has(fqdn)) clusters.set(fqdn, await tx.clusters.get(fqdn));
      const cluster = clusters.get(fqdn);
      if (cluster !== undefined) {
        built.push([{ node: uid, name: "cluster", sub: fqdn }, clusterDocument(cluster, node)]);
      }
    }
    return built;
  };

  /** Returns secret fields, which are not stored: they count for the version and are added on signing. */
  const secretsOf = (uid: string, name: DocumentName): JsonObject =>
    name === "node" ? { settings: { speedTestUrl: `${origin}${SPEED_TEST_PATH}/${speedTestTokens.of(uid)}` } } : {};

  const storedOf = async (from: Lookup, uid: string, name: DocumentName) => {
    const id = idOf(uid, name, await from.nodes.placement(uid));
    const document = id === undefined ? undefined : await from.documents.get(id);
    return id === undefined || document === undefined ? undefined : { id, document };
  };

  const versionsOf = async (uid: string): Promise<DocumentVersions> => {
    const placement = await store.nodes.placement(uid);
    const stored = await store.documents.versions(uid);
    const versions = { keys: keys.newest.version, node: 0, cluster: 0, domain: 0 };
    for (const name of NAMES) {
      const sub = idOf(uid, name, placement)?.sub;
      versions[name] = stored.find((row) => row.name === name && row.sub === sub)?.version ?? 0;
    }
    return versions;
  };

  /** After a restore new documents, too, count on above every version that a node may have from the lost time. */
  const floorIn = async ({ meta }: DocumentParts): Promise<number> => Number((await meta.get("document-floor")) ?? 0);

  /** Stores those documents that changed, with their next versions; returns them. */
  const putChanged = async (tx: DocumentParts, contents: readonly Content[]): Promise<readonly DocumentId[]> => {
    const rows = await tx.documents.hashes([...new Set(contents.map(([{ node }]) => node))]);
    const hashes = new Map(rows.map((row) => [keyOf(row), row.hash]));
    // All subjects of a name share one series of versions.
    const highest = new Map<string, number>();
    for (const { node, name, version } of rows) {
      const key = `${node} ${name}`;
      highest.set(key, Math.max(version, highest.get(key) ?? 0));
    }
    const changed: DocumentId[] = [];
    let floor: number | undefined;
    for (const [id, content] of contents) {
      const body = JSON.stringify(content);
      const hash = sha256(body + JSON.stringify(secretsOf(id.node, id.name)));
      if (hashes.get(keyOf(id)) === hash) continue;
      floor ??= await floorIn(tx);
      const key = `${id.node} ${id.name}`;
      const version = Math.max(highest.get(key) ?? 0, floor) + 1;
      highest.set(key, version);
      await tx.documents.put(id, { version, hash, body });
      changed.push(id);
    }
    return changed;
  };

  /** Latest report of each node and document: limits the events that a node can cause. */
  const reported = new Map<string, { readonly have: number; readonly at: number }>();
  const shouldReport = (uid: string, name: string, have: number): boolean => {
    const last = reported.get(`${uid} ${name}`);
    return last === undefined || (last.have !== have && clock.elapsed() - last.at >= RESTORED_EVENT_MS);
  };
  const noteReported = (uid: string, name: string, have: number): void => {
    const key = `${uid} ${name}`;
    reported.delete(key);
    const [oldest] = reported.keys();
    if (oldest !== undefined && reported.size >= MAX_REMEMBERED) reported.delete(oldest);
    reported.set(key, { have, at: clock.elapsed() });
  };

  /** Compares a node's version of one document with ours. */
  const followOne = async (
    tx: DocumentParts & EventParts,
    uid: string,
    name: DocumentName,
    have: number,
  ): Promise<Followed | undefined> => {
    const node = await tx.nodes.label(uid);
    const stored = await storedOf(tx, uid, name);
    const verdict = stored === undefined ? "fine" : judgeHave(stored.document.version, have);
    if (stored === undefined || node === undefined || verdict === "fine") return undefined;
    const { id, document } = stored;
    const isFollowed = verdict === "restored";
    if (isFollowed) await tx.documents.put(id, { ...document, version: have + 1 });
    const isReported = shouldReport(uid, name, have);
    if (isReported) {
      await events.record(tx, node, {
        eventType: "Control Plane Restored",
        level: "WARNING",
        message: isFollowed
          ? `Node has version ${have} of its ${name} document, newer than ${document.version} here; continuing with version ${have + 1}`
          : `Node has version ${have} of its ${name} document, too far above ${document.version} here; it is ignored`,
        details: { document: name, have, stored: document.version, followed: isFollowed },
      });
    }
    return { name, isFollowed, isReported };
  };

  /** Reports a keys document newer than ours. Only root issues its versions, so it cannot be followed. */
  const reportKeysAhead = async (
    tx: DocumentParts & EventParts,
    uid: string,
    have: number,
  ): Promise<Followed | undefined> => {
    const stored = keys.newest.version;
    const node = have > stored ? await tx.nodes.label(uid) : undefined;
    if (node === undefined || !shouldReport(uid, "keys", have)) return undefined;
    await events.record(tx, node, {
      eventType: "Control Plane Restored",
      level: "WARNING",
      message: `Node has version ${have} of the keys document, newer than ${stored} here; only the root key can issue a newer one`,
      details: { document: "keys", have, stored, followed: false },
    });
    return { name: "keys", isFollowed: false, isReported: true };
  };

  return {
    async refresh(tx, uids) {
      const changed: DocumentId[] = [];
      let group: Content[] = [];
      for await (const content of contentsOf(tx, new Set(uids))) {
        if (group.push(content) < GROUP) continue;
        changed.push(...(await putChanged(tx, group)));
        group = [];
      }
      if (group.length > 0) changed.push(...(await putChanged(tx, group)));
      const byNode = Map.groupBy(changed, ({ node }) => node);
      return new Map([...byNode].map(([uid, ids]) => [uid, ids.map(({ name }) => name)]));
    },
    versions: versionsOf,
    async follow(uid, have) {
      // Nodes that are not ahead, which is nearly all of them, need no transaction.
      const ours = await versionsOf(uid);
      if ([...NAMES, "keys" as const].every((name) => have[name] <= ours[name])) return [];
      const found = await store.transact(async (tx) => {
        const verdicts: (Followed | undefined)[] = [await reportKeysAhead(tx, uid, have.keys)];
        for (const name of NAMES) verdicts.push(await followOne(tx, uid, name, have[name]));
        return verdicts.filter((verdict) => verdict !== undefined);
      });
      for (const { name, isReported } of found) if (isReported) noteReported(uid, name, have[name]);
      return NAMES.filter((name) => found.some((verdict) => verdict.name === name && verdict.isFollowed));
    },
    async signed(uid, name) {
      const stored = await storedOf(store, uid, name);
      if (stored === undefined) return undefined;
      const { id, document } = stored;
      if (document.jws !== undefined && document.seal === seal) return document.jws;
      const secrets = secretsOf(uid, name);
      const body = { ...JsonObject.parse(JSON.parse(document.body)), ...secrets };
      const iat = Math.floor(clock.now() / 1000);
      const claims = { iss: origin, aud: uid, name, sub: id.sub, version: document.version, iat, body };
      const jws = await signJws("holdfast-document+jwt", claims, keys.signing);
      if (Object.keys(secrets).length === 0) await store.documents.setJws(id, document.version, jws, seal);
      return jws;
    },
  };
}

const keyOf = ({ node, name, sub }: Readonly<Record<"node" | "name" | "sub", string>>): string =>
  `${node} ${name} ${sub}`;

/** Yields the items in groups that are read together. */
function* groups<T>(items: Iterable<T>): Iterable<readonly T[]> {
  let group: T[] = [];
  for (const item of items) {
    if (group.push(item) < GROUP) continue;
    yield group;
    group = [];
  }
  if (group.length > 0) yield group;
}

function idOf(
  uid: string,
  name: DocumentName,
  placement: { readonly cluster: string | undefined; readonly domain: string } | undefined,
): DocumentId | undefined {
  if (placement === undefined) return undefined;
  const sub = { node: uid, cluster: placement.cluster, domain: placement.domain }[name];
  return sub === undefined ? undefined : { node: uid, name, sub };
}
