import { DocumentName } from "../../protocol/documents/claims.ts";
import type { Changes } from "../nodes/changes.ts";
import type { Atomic } from "../store/atomic.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting } from "./awaiting.ts";
import type { Documents } from "./documents/documents.ts";

export interface DocumentChangesDeps {
  readonly store: Atomic;
  readonly documents: Pick<Documents, "refresh" | "versions">;
  readonly announcer: Pick<Announcer, "changed">;
  readonly sessions: { get(uid: string): unknown };
  readonly awaiting: Pick<Awaiting, "expect">;
}

/** Changes that reach nodes through their documents. */
export class DocumentChanges implements Changes {
  readonly #deps: DocumentChangesDeps;

  constructor(deps: DocumentChangesDeps) {
    this.#deps = deps;
  }

  apply(change: () => Iterable<string>): void {
    const { store, documents, announcer, sessions, awaiting } = this.#deps;
    const changed = store.atomic(() => {
      const refreshed = documents.refresh(change());
      for (const [uid, names] of refreshed) {
        // A change of the domain document disconnects no node.
        if (sessions.get(uid) !== undefined && names.some((name) => name !== "domain")) {
          awaiting.expect(uid, "configuration");
        }
      }
      return refreshed;
    });
    for (const [uid, names] of changed) announcer.changed(uid, names);
  }

  /** Announces all documents of a node. */
  announceAll(uid: string): void {
    const { documents, announcer } = this.#deps;
    const versions = documents.versions(uid);
    announcer.changed(
      uid,
      DocumentName.options.filter((name) => versions[name] > 0),
    );
  }
}
