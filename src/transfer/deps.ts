import type { Random } from "../lib/async/backoff.ts";
import type { Clock } from "../host/clock.ts";
import type { Store } from "../host/data-store/store.ts";
import type { GuardedConnector } from "../host/net/guarded-connect.ts";
import type { Resume, TransferEvent } from "../protocol/triggers/transfer.ts";

/** Dependencies of every kind of transfer. */
export interface TransferDeps {
  readonly clock: Clock;
  readonly store: Store;
  readonly connector: GuardedConnector;
  readonly emit: (event: TransferEvent) => void;
  /** Reports a complete part and waits for the order to publish it. */
  readonly mayPublish: (resume: Resume, signal: AbortSignal) => Promise<void>;
  readonly random: Random;
}
