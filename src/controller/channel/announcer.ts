import type { Clock } from "../../host/clock.ts";
import { inTurns } from "../../lib/async/in-turns.ts";
import type { DocumentName } from "../../protocol/documents/claims.ts";
import type { Documents } from "./documents/documents.ts";
import type { NodeSession } from "./session.ts";

/** Time to batch changes before nodes are notified, and delay before a congested socket or a failed store is retried, in milliseconds. */
const GATHER_MS = 20;
const RETRY_MS = 1000;
/** Nodes whose versions are read at a time. */
const ABREAST = 8;

interface Listener {
  readonly isCongested: boolean;
  readonly peer: Pick<NodeSession["peer"], "notify">;
}

export interface AnnouncerDeps {
  readonly sessions: { get(uid: string): Listener | undefined };
  readonly documents: Pick<Documents, "versions">;
  readonly clock: Clock;
}

/** Notifies online nodes of changed documents; batches several changes into one message. */
export class Announcer {
  readonly #deps: AnnouncerDeps;
  readonly #due = new Map<string, Set<DocumentName>>();
  #cancel: (() => void) | undefined;
  #flushing: Promise<void> | undefined;
  #isClosed = false;

  constructor(deps: AnnouncerDeps) {
    this.#deps = deps;
  }

  changed(uid: string, names: readonly DocumentName[]): void {
    if (this.#isClosed || names.length === 0 || this.#deps.sessions.get(uid) === undefined) return;
    const due = this.#due.get(uid) ?? new Set();
    for (const name of names) due.add(name);
    this.#due.set(uid, due);
    this.#arm(GATHER_MS);
  }

  /** Drops what is due: nodes compare versions when they connect again. Waits for what is being sent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancel?.();
    this.#due.clear();
    await this.#flushing;
  }

  #arm(ms: number): void {
    if (this.#isClosed || this.#flushing !== undefined) return;
    this.#cancel ??= this.#deps.clock.after(ms, () => {
      this.#cancel = undefined;
      this.#flushing = this.#flush();
    });
  }

  async #flush(): Promise<void> {
    const later = new Map<string, ReadonlySet<DocumentName>>();
    await inTurns([...this.#due], ABREAST, async ([uid, names]) => {
      const session = this.#deps.sessions.get(uid);
      this.#due.delete(uid);
      if (session === undefined) return;
      const isNotified = !session.isCongested && (await this.#isNotified(session, uid, names));
      if (!isNotified) later.set(uid, names);
    });
    this.#flushing = undefined;
    // Changes during the flush must not wait as long as those that failed.
    const delay = this.#due.size > 0 ? GATHER_MS : RETRY_MS;
    for (const [uid, names] of later) this.#due.set(uid, new Set([...names, ...(this.#due.get(uid) ?? [])]));
    if (this.#due.size > 0) this.#arm(delay);
  }

  /** Notifies a node; returns false while the store is unavailable, which those who write to it report. */
  async #isNotified({ peer }: Listener, uid: string, names: ReadonlySet<DocumentName>): Promise<boolean> {
    try {
      const versions = await this.#deps.documents.versions(uid);
      for (const name of names) peer.notify("document.changed", { name, version: versions[name] });
      return true;
    } catch {
      return false;
    }
  }
}
