import type { Clock } from "../host/clock.ts";
import type { Store } from "../host/data-store/store.ts";
import type { GuardedConnector } from "../host/net/guarded-connect.ts";
import type { Resume, TransferEvent } from "../protocol/triggers/transfer.ts";

/** What every kind of transfer works with. */
export interface TransferDeps {
  readonly clock: Clock;
  readonly store: Store;
  readonly connector: GuardedConnector;
  readonly emit: (event: TransferEvent) => void;
  /** Tells what is whole, and waits until it may be given its name. */
  readonly mayPublish: (resume: Resume, signal: AbortSignal) => Promise<void>;
  readonly random: () => number;
}
