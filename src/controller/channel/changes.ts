import { DocumentName } from "../../protocol/documents/claims.ts";
import type { Changed, Changes } from "../nodes/changes.ts";
import type { Transact } from "../store/transact.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting, AwaitingParts } from "./awaiting.ts";
import type { DocumentParts, Documents } from "./documents/documents.ts";

export interface DocumentChangesDeps<Parts> {
  readonly store: Transact<Parts>;
  readonly documents: Pick<Documents, "refresh" | "versions">;
  readonly announcer: Pick<Announcer, "changed">;
  readonly sessions: { get(uid: string): unknown };
  readonly awaiting: Pick<Awaiting, "expect">;
}

/** Changes that reach nodes through their documents. */
export class DocumentChanges<Parts extends DocumentParts & Pick<AwaitingParts, "awaited">> implements Changes<Parts> {
  readonly #deps: DocumentChangesDeps<Parts>;

  constructor(deps: DocumentChangesDeps<Parts>) {
    this.#deps = deps;
  }

  async apply<T>(change: (tx: Parts) => Promise<Changed<T>>): Promise<T> {
    const { store, documents, announcer, sessions, awaiting } = this.#deps;
    const { refreshed, result } = await store.transact(async (tx) => {
      const { uids, result } = await change(tx);
      const refreshed = await documents.refresh(tx, uids);
      for (const [uid, names] of refreshed) {
        // A change of the domain document disconnects no node.
        if (sessions.get(uid) !== undefined && names.some((name) => name !== "domain")) {
          await awaiting.expect(tx, uid, "configuration");
        }
      }
      return { refreshed, result };
    });
    for (const [uid, names] of refreshed) announcer.changed(uid, names);
    return result;
  }

  /** Announces all documents of a node. */
  async announceAll(uid: string): Promise<void> {
    const { documents, announcer } = this.#deps;
    const versions = await documents.versions(uid);
    announcer.changed(
      uid,
      DocumentName.options.filter((name) => versions[name] > 0),
    );
  }
}
