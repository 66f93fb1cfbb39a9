import type { Clock } from "../host/clock.ts";
import type { MeshEvent, MeshState, RttBucket } from "../protocol/overlay/mesh.ts";
import type { ControlPeer } from "./control.ts";

const CHANGED_MS = 100;
/** With ten thousand clients a state takes long to serialize and leaves garbage; limits this to a share of the time. */
const CHANGED_SHARE = 0.02;
const MAX_EVENTS = 1000;
const EVENTS_A_NOTICE = 500;
const DAY_MS = 24 * 3_600_000;
const MAX_BUCKETS = 14_400;
const BUCKETS_A_NOTICE = 1024;

/** Reports on the mesh to the agent: states while an agent is connected; events and round trips are buffered. */
export class MeshReports {
  readonly #clock: Clock;
  readonly #state: () => MeshState;
  #subscriber: ControlPeer | undefined;
  #events: MeshEvent[] = [];
  #buckets: RttBucket[] = [];
  #cancel: (() => void) | undefined;
  #tookMs = 0;

  /** `state` reads the state of the mesh. */
  constructor(clock: Clock, state: () => MeshState) {
    this.#clock = clock;
    this.#state = state;
  }

  /** Sets the receiver of notifications and delivers what was buffered. */
  deliverTo(subscriber: ControlPeer | undefined): void {
    this.#subscriber = subscriber;
    this.#flush();
  }

  changed(): void {
    if (this.#subscriber === undefined) return;
    this.#cancel ??= this.#clock.after(Math.max(CHANGED_MS, this.#tookMs / CHANGED_SHARE), () => {
      this.#cancel = undefined;
      const from = this.#clock.elapsed();
      const { paths, clients, server } = this.#state();
      this.#subscriber?.notify("mesh.changed", { paths, clients, server });
      this.#tookMs = this.#clock.elapsed() - from;
    });
  }

  events(events: readonly MeshEvent[]): void {
    this.#events = [...this.#events, ...events].slice(-MAX_EVENTS);
    this.#flush();
  }

  buckets(buckets: readonly RttBucket[]): void {
    const since = this.#clock.now() - DAY_MS;
    this.#buckets = [...this.#buckets, ...buckets].filter(({ time }) => time >= since).slice(-MAX_BUCKETS);
    this.#flush();
  }

  close(): void {
    this.#cancel?.();
  }

  #flush(): void {
    const subscriber = this.#subscriber;
    if (subscriber === undefined) return;
    while (this.#events.length > 0)
      subscriber.notify("mesh.events", { events: this.#events.splice(0, EVENTS_A_NOTICE) });
    while (this.#buckets.length > 0)
      subscriber.notify("rtt.closed", { buckets: this.#buckets.splice(0, BUCKETS_A_NOTICE) });
  }
}
