import type { DomainDocument } from "../../../protocol/documents/documents.ts";
import { sha256 } from "../../access/admin-key.ts";
import { affectedBy, domainDocument, domainOf } from "./domain.ts";
import { meshNode, type MeshNode } from "./mesh-node.ts";
import type { MeshRow } from "./mesh-store.ts";
import type { Atomic } from "../../store/atomic.ts";
import type { MeshStore } from "./mesh-store.ts";

/** Dependencies between nodes, kept in memory, so that a change only re-evaluates the nodes it concerns. */
export interface Neighbours {
  /**
   * Rereads these nodes, whether new, changed or deleted, and returns the `domain` documents that may change, by UID. Returns all of them
   * at first and after a failed transaction, since the memory may hold rolled-back changes.
   */
  changed(uids: Iterable<string>): Iterable<readonly [uid: string, document: DomainDocument]>;
}

interface Known {
  readonly print: string;
  readonly node: MeshNode;
}

export function neighbours(store: Pick<Atomic, "failures"> & { readonly mesh: MeshStore }): Neighbours {
  const known = new Map<string, Known>();
  let loadedAt: number | undefined;

  const load = (): readonly string[] => {
    loadedAt = store.failures();
    known.clear();
    for (const row of store.mesh.all()) known.set(row.uid, knownOf(row, undefined));
    return [...known.keys()];
  };

  const follow = (uids: Iterable<string>): ReadonlySet<string> => {
    const affected = new Set<string>();
    for (const uid of uids) {
      const [before, row] = [known.get(uid), store.mesh.get(uid)];
      const after = row === undefined ? undefined : knownOf(row, before);
      if (before === after) continue;
      if (after === undefined) known.delete(uid);
      else known.set(uid, after);
      for (const other of affectedBy(before?.node, after?.node, nodes())) affected.add(other);
    }
    return affected;
  };

  function* nodes(): Iterable<MeshNode> {
    for (const { node } of known.values()) yield node;
  }

  return {
    *changed(uids) {
      const affected = loadedAt === store.failures() ? [...follow(uids)] : load();
      if (affected.length === 0) return;
      const domain = domainOf(nodes());
      for (const uid of affected) {
        const node = known.get(uid)?.node;
        if (node !== undefined) yield [uid, domainDocument(node.domain, node, domain)];
      }
    },
  };
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
