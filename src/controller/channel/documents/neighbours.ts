import { randomUUID } from "node:crypto";
import type { DomainDocument } from "../../../protocol/documents/documents.ts";
import { sha256 } from "../../access/admin-key.ts";
import { affectedBy, domainDocument, Domain } from "./domain.ts";
import { meshNode, type MeshNode } from "./mesh-node.ts";
import type { MeshRow, MeshStore } from "./mesh-store.ts";
import type { MetaStore } from "../../store/meta.ts";

/** Stores that the dependencies are read from. */
export interface NeighbourParts {
  readonly mesh: MeshStore;
  readonly meta: Pick<MetaStore, "get" | "set">;
}

/** Dependencies between nodes, kept in memory, so that a change only re-evaluates the nodes it concerns. */
export interface Neighbours {
  /**
   * Rereads these nodes, whether new, changed or deleted, and returns the `domain` documents that may change, by UID. Returns all of them
   * at first, and after a change that this memory has not seen.
   */
  changed(
    tx: NeighbourParts,
    uids: Iterable<string>,
  ): Promise<Iterable<readonly [uid: string, document: DomainDocument]>>;
}

interface Known {
  readonly print: string;
  readonly node: MeshNode;
}

/** All nodes, with the mark that the transaction which led to them left in the store. */
interface Snapshot {
  readonly mark: string | undefined;
  readonly nodes: Map<string, Known>;
  readonly domain: Domain;
}

/** A change that the snapshot contains already: it has happened if the store has its mark, and is undone if not. */
interface Step {
  readonly mark: string;
  readonly changes: ReadonlyMap<string, Change>;
}

/** A node before and after a change; undefined if it does not exist. */
interface Change {
  readonly before: Known | undefined;
  readonly after: Known | undefined;
}

/**
 * Returns the dependencies. A transaction may be rolled back, and others may run meanwhile, so each one that changes them leaves a mark
 * of its own in the store; the memory is only used for the state that has the same mark. Two such transactions conflict at the mark.
 */
export function neighbours(): Neighbours {
  let known: Snapshot = { mark: undefined, nodes: new Map(), domain: new Domain() };
  let step: Step | undefined;

  const set = (uid: string, from: Known | undefined, to: Known | undefined): void => {
    known.domain.replace(from?.node, to?.node);
    if (to === undefined) known.nodes.delete(uid);
    else known.nodes.set(uid, to);
  };

  /** Brings the memory to the state that a transaction sees. Returns false if it has to be loaded. */
  const isAt = (mark: string | undefined): boolean => {
    if (step !== undefined && step.mark === mark) known = { ...known, mark };
    else if (known.mark !== mark) return false;
    else for (const [uid, { before, after }] of step?.changes ?? []) set(uid, after, before);
    step = undefined;
    return mark !== undefined;
  };

  const load = async (tx: NeighbourParts): Promise<Iterable<readonly [string, DomainDocument]>> => {
    const mark = randomUUID();
    await tx.meta.set("mesh", mark);
    const rows = await tx.mesh.all();
    const nodes = new Map(rows.map((row) => [row.uid, knownOf(row, known.nodes.get(row.uid))]));
    known = { mark, nodes, domain: new Domain(meshOf(nodes)) };
    step = undefined;
    return documentsOf(known, nodes.keys());
  };

  const changesOf = (rows: ReadonlyMap<string, MeshRow | undefined>): ReadonlyMap<string, Change> => {
    const changes = new Map<string, Change>();
    for (const [uid, row] of rows) {
      const before = known.nodes.get(uid);
      const after = row === undefined ? undefined : knownOf(row, before);
      if (before !== after) changes.set(uid, { before, after });
    }
    return changes;
  };

  const follow = async (
    tx: NeighbourParts,
    from: string,
    uids: Iterable<string>,
  ): Promise<Iterable<readonly [string, DomainDocument]>> => {
    const rows = new Map<string, MeshRow | undefined>();
    for (const uid of uids) rows.set(uid, await tx.mesh.get(uid));
    if (!isAt(from)) return load(tx);
    const changes = changesOf(rows);
    if (changes.size === 0) return [];
    const mark = randomUUID();
    await tx.meta.set("mesh", mark);
    // Another transaction may have been followed meanwhile.
    if (!isAt(from)) return load(tx);
    const affected = new Set<string>();
    for (const [uid, { before, after }] of changes) {
      set(uid, before, after);
      for (const other of affectedBy(before?.node, after?.node, known.domain)) affected.add(other);
    }
    step = { mark, changes };
    return [...documentsOf(known, affected)];
  };

  return {
    async changed(tx, uids) {
      const mark = await tx.meta.get("mesh");
      return mark !== undefined && isAt(mark) ? follow(tx, mark, uids) : load(tx);
    },
  };
}

function* meshOf(nodes: ReadonlyMap<string, Known>): Iterable<MeshNode> {
  for (const { node } of nodes.values()) yield node;
}

function* documentsOf(
  { nodes, domain }: Snapshot,
  uids: Iterable<string>,
): Iterable<readonly [string, DomainDocument]> {
  for (const uid of uids) {
    const node = nodes.get(uid)?.node;
    if (node !== undefined) yield [uid, domainDocument(node.domain, node, domain)];
  }
}

/** Reuses the parsed node if its row is unchanged: a section may have ten thousand items. */
function knownOf(row: MeshRow, before: Known | undefined): Known {
  const print = sha256(JSON.stringify(row));
  if (before?.print === print) return before;
  const { gateway, connectors, ...rest } = row;
  return { print, node: meshNode({ ...rest, gateway: parse(gateway), connectors: parse(connectors) }) };
}

function parse(section: string | undefined): unknown {
  return section === undefined ? undefined : JSON.parse(section);
}
