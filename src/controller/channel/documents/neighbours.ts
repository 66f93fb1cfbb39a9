import { randomUUID } from "node:crypto";
import type { DomainDocument } from "../../../protocol/documents/documents.ts";
import { sha256 } from "../../access/admin-key.ts";
import { affectedBy, domainDocument, domainOf, type Domain } from "./domain.ts";
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

/** A state of all nodes, with the mark that the transaction which leads to it leaves in the store. */
interface Snapshot {
  readonly mark: string | undefined;
  readonly nodes: Map<string, Known>;
}

/** A change of a snapshot: undefined for a deleted node. It has happened if the store has its mark. */
interface Step {
  readonly from: string;
  readonly mark: string;
  readonly nodes: ReadonlyMap<string, Known | undefined>;
}

/**
 * Returns the dependencies. A transaction may be rolled back, and others may run meanwhile, so each one that changes them leaves a mark
 * of its own in the store; the memory is only used for the state that has the same mark. Two such transactions conflict at the mark.
 */
export function neighbours(): Neighbours {
  let known: Snapshot = { mark: undefined, nodes: new Map() };
  let step: Step | undefined;

  /** Brings the memory to the state that a transaction sees. Returns false if it has to be loaded. */
  const isAt = (mark: string | undefined): boolean => {
    if (mark !== undefined && step?.mark === mark && step.from === known.mark) {
      const { nodes } = known;
      for (const [uid, node] of step.nodes) {
        if (node === undefined) nodes.delete(uid);
        else nodes.set(uid, node);
      }
      known = { mark, nodes };
    }
    return mark !== undefined && known.mark === mark;
  };

  const load = async (tx: NeighbourParts): Promise<Iterable<readonly [string, DomainDocument]>> => {
    const mark = randomUUID();
    await tx.meta.set("mesh", mark);
    const nodes = new Map<string, Known>();
    for (const row of await tx.mesh.all()) nodes.set(row.uid, knownOf(row, known.nodes.get(row.uid)));
    known = { mark, nodes };
    return documentsOf(nodes, nodes.keys());
  };

  const follow = async (
    tx: NeighbourParts,
    from: string,
    uids: Iterable<string>,
  ): Promise<Iterable<readonly [string, DomainDocument]>> => {
    const changes = new Map<string, Known | undefined>();
    for (const uid of uids) {
      const [before, row] = [known.nodes.get(uid), await tx.mesh.get(uid)];
      const after = row === undefined ? undefined : knownOf(row, before);
      if (before !== after) changes.set(uid, after);
    }
    if (changes.size === 0) return [];
    const nodes = new Map(known.nodes);
    const affected = new Set<string>();
    for (const [uid, after] of changes) {
      const before = nodes.get(uid);
      if (after === undefined) nodes.delete(uid);
      else nodes.set(uid, after);
      for (const other of affectedBy(before?.node, after?.node, meshOf(nodes))) affected.add(other);
    }
    const mark = randomUUID();
    await tx.meta.set("mesh", mark);
    step = { from, mark, nodes: changes };
    return documentsOf(nodes, affected);
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
  nodes: ReadonlyMap<string, Known>,
  uids: Iterable<string>,
): Iterable<readonly [string, DomainDocument]> {
  let domain: Domain | undefined;
  for (const uid of uids) {
    const node = nodes.get(uid)?.node;
    if (node === undefined) continue;
    domain ??= domainOf(meshOf(nodes));
    yield [uid, domainDocument(node.domain, node, domain)];
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
