import { join } from "node:path";
import type { Logger } from "pino";
import { HostError, InputError, toError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { Files } from "../host/files/files.ts";
import { keepSockets, type KeptSockets } from "../host/net/kept-sockets.ts";
import { writePidFile } from "../host/process/pid-file.ts";
import { directoryMark, makeRunDirectory } from "../host/net/unix-socket.ts";
import { readSealed, stateFile, valueOf } from "../host/files/state-file.ts";
import {
  MAX_DRAIN_MS,
  NewerTable,
  OVERLAY_SOCKET,
  OverlayTable,
  tableHash,
  type OverlayFault,
  type OverlayMethods,
} from "../protocol/overlay/overlay.ts";
import type { Handlers } from "../protocol/channel/rpc.ts";
import { connectControl, type ControlClient } from "../host/overlay/control.ts";
import { serveControl, type Control, type ControlPeer } from "./control.ts";
import { DataPlane } from "./data-plane.ts";
import { flowLog, type FlowLog } from "./flow/flow-log.ts";
import { MeshPart } from "./mesh-part.ts";
import type { AskName } from "./dial/name-cache.ts";
import { serialQueue } from "../lib/async/serial-queue.ts";
import { defined } from "../lib/defined.ts";

export interface OverlayOptions {
  readonly stateDir: string;
  readonly runDir: string;
  /** Take over from the overlay that serves the run directory, if any. */
  readonly isSuccessor: boolean;
  /** Stop when the state directory is removed, since no supervisor would stop it. */
  readonly endsWithState: boolean;
  readonly clock: Clock;
  readonly files: Files;
  readonly log: Logger;
  readonly askName: AskName;
  readonly localAddresses: () => readonly string[];
  readonly descriptorLimit: number;
  readonly onMesh: () => void;
  readonly onFirstFlow: () => void;
  /** Adapts the heap limit to the workload; called every minute. */
  readonly makeRoom: () => void;
}

export interface Overlay {
  /** Resolves when the overlay has drained, or when the node's state is removed. */
  readonly ended: Promise<void>;
  /** Reports whether a successor has replaced it. */
  readonly wasReplaced: boolean;
  /** Stops accepting, and ends with the last flow or at the deadline. */
  drain(deadlineMs: number): Promise<void>;
  /** Closes everything immediately. */
  close(): void;
}

const TABLE_FILE = "table.json";
const KEEP_AGAIN_MS = 10_000;
const DRAIN_POLL_MS = 250;
const MAX_UNDELIVERED = 16;

/**
 * Serves the stored table, then every table that the agent sends.
 * @throws {HostError} `socket-in-use` when another overlay serves the run directory and this is not its successor.
 */
export async function startOverlay(options: OverlayOptions): Promise<Overlay> {
  const { runDir, stateDir, files } = options;
  await makeRunDirectory(runDir);
  await files.makeDirectory(stateDir, 0o700);
  const overlay = new RunningOverlay(options);
  await overlay.start();
  return overlay;
}

class RunningOverlay implements Overlay {
  readonly ended: Promise<void>;
  readonly #options: OverlayOptions;
  readonly #startedAt: number;
  readonly #flows: FlowLog;
  readonly #plane: DataPlane;
  readonly #mesh: MeshPart;
  readonly #stored;
  #finish = (): void => undefined;
  #control: Control | undefined;
  #sockets: KeptSockets | undefined;
  #subscriber: ControlPeer | undefined;
  #predecessor: ControlClient | undefined;
  #table: OverlayTable | undefined;
  #hash = "";
  /** Runs calls about the table one after another and after its loading, so that none sees a partly applied table. */
  readonly #serially = serialQueue();
  #isDraining = false;
  #wasReplaced = false;
  #isClosed = false;
  #isTableAtFault = false;
  /** Notifications for the next subscriber. */
  #undelivered: ((peer: ControlPeer) => void)[] = [];

  constructor(options: OverlayOptions) {
    const { clock, stateDir, files } = options;
    this.#options = options;
    this.#startedAt = clock.now();
    this.ended = new Promise((resolve) => {
      this.#finish = resolve;
    });
    this.#flows = flowLog(clock);
    this.#stored = stateFile(files, { path: join(stateDir, TABLE_FILE), schema: OverlayTable, keepsPrevious: true });
    this.#plane = new DataPlane({
      clock,
      askName: options.askName,
      localAddresses: options.localAddresses,
      descriptorLimit: options.descriptorLimit,
      onFirstFlow: options.onFirstFlow,
      flows: this.#flows,
      onListeners: (listeners) => this.#subscriber?.notify("listeners.changed", { listeners: [...listeners] }),
      onServices: (services) => this.#subscriber?.notify("services.changed", { services: [...services] }),
    });
    this.#mesh = new MeshPart({ ...options, plane: this.#plane, onFault: (fault) => this.#fault(fault) });
  }

  async start(): Promise<void> {
    if (this.#options.isSuccessor) await this.#takeOver();
    else await this.#serveLastTable();
    this.#keepSocket();
  }

  get wasReplaced(): boolean {
    return this.#wasReplaced;
  }

  async drain(deadlineMs: number): Promise<void> {
    if (this.#isDraining) return;
    this.#isDraining = true;
    this.#wasReplaced = this.#control?.hasSuccessor ?? false;
    await this.#serially(() => Promise.resolve());
    await this.#plane.stopListening();
    await this.#mesh.drain();
    await this.#sockets?.close();
    this.#control?.release();
    const deadline = this.#options.clock.elapsed() + Math.min(deadlineMs, MAX_DRAIN_MS);
    this.#options.log.info({ flows: this.#plane.activeFlows }, "draining");
    void this.#endAfterFlows(deadline);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#plane.close();
    this.#mesh.close();
    this.#flows.close();
    void this.#sockets?.close().then(() => this.#control?.close());
    this.#control?.close();
    this.#predecessor?.close();
    this.#finish();
  }

  async #serve(): Promise<void> {
    this.#control = await serveControl({
      runDir: this.#options.runDir,
      log: this.#options.log,
      handlers: this.#handlers(),
      onSubscriber: (peer) => this.#giveTo(peer),
    });
  }

  /**
   * Listens at the control socket before it loads the table: two overlays in one run directory would compete for ports.
   * Calls about the table wait until it is loaded.
   */
  #serveLastTable(): Promise<void> {
    const serving = this.#serve();
    return this.#serially(async () => {
      await serving;
      await this.#loadTable();
    });
  }

  #giveTo(peer: ControlPeer | undefined): void {
    this.#subscriber = peer;
    this.#flows.deliverTo(peer === undefined ? undefined : (flows) => peer.notify("flows.ended", { flows }));
    this.#mesh.deliverTo(peer);
    if (peer === undefined) return;
    for (const notify of this.#undelivered) notify(peer);
    this.#undelivered = [];
  }

  async #loadTable(): Promise<void> {
    const loaded = await this.#stored.load();
    const table = valueOf(loaded);
    const isSetAside = loaded.is === "recovered" || loaded.is === "lost";
    if (isSetAside) await this.#reportSetAside(loaded.damagedCopy, table !== undefined);
    if (table === undefined) return;
    await this.#enforce(table);
    if (isSetAside) await this.#keep(table);
  }

  async #takeOver(): Promise<void> {
    const { runDir, log } = this.#options;
    const client = await connectControl(join(runDir, OVERLAY_SOCKET), {
      "flows.ended": ({ flows }) => {
        for (const flow of flows) this.#flows.add(flow);
      },
      "mesh.events": ({ events }) => this.#mesh.reports.events(events),
      "rtt.closed": ({ buckets }) => this.#mesh.reports.buckets(buckets),
    }).catch(() => undefined);
    const handover = await client?.peer.request("handover", {}).catch(() => undefined);
    if (client === undefined || handover === undefined) {
      return this.#serveLastTable();
    }
    this.#predecessor = client;
    const { pid, table, bound } = handover;
    this.#plane.shareWith(bound);
    if (table === undefined) await this.#loadTable();
    else await this.#enforce(table);
    // If the predecessor dies here, there is nothing to drain.
    await client.peer.request("drain", { deadlineMs: MAX_DRAIN_MS }).catch((error: unknown) => {
      log.warn({ pid, reason: toError(error).message }, "the predecessor disconnected");
    });
    this.#plane.shareWith([]);
    await this.#serve();
    await Promise.all([this.#plane.retryNow(), this.#mesh.retryNow()]);
    log.info({ pid }, "took over from the predecessor");
  }

  #handlers(): Handlers<OverlayMethods> {
    return {
      ...this.#mesh.handlers(),
      "table.set": ({ table }) => this.#serially(() => this.#set(table)),
      "table.get": ({ known }) => this.#serially(() => Promise.resolve(this.#get(known))),
      "counters.get": () => ({
        pid: process.pid,
        startedAt: this.#startedAt,
        version: this.#table?.version ?? 0,
        draining: this.#isDraining,
        flowsDropped: this.#flows.dropped,
        listeners: this.#plane.listeners(),
        counters: this.#plane.counters(),
        services: this.#plane.services(),
      }),
      "flows.list": ({ filter, limit }) => this.#plane.flows.list(filter, limit),
      "flows.cut": ({ filter, limit }) => {
        const cut = this.#plane.flows.cut(filter, limit);
        this.#options.log.info({ ...filter, flows: cut.total }, "flows cut");
        return cut;
      },
      drain: async ({ deadlineMs }) => {
        await this.drain(deadlineMs);
        return {};
      },
      forget: async () => {
        // From here on the overlay accepts no table, which would otherwise be written after the files are removed.
        await this.drain(0);
        const { wipeOverlayState } = await import("../host/overlay/reset.ts");
        await wipeOverlayState(this.#options.stateDir);
        this.#options.log.info("key, certificate and table removed: the node is reset");
        return {};
      },
      handover: () =>
        this.#serially(() =>
          Promise.resolve({
            pid: process.pid,
            ...defined({ table: this.#table }),
            bound: [...this.#plane.bound()],
          }),
        ),
    };
  }

  #get(known: string | undefined) {
    return {
      version: this.#table?.version ?? 0,
      hash: this.#hash,
      ...(this.#table === undefined || this.#hash === known ? {} : { table: this.#table }),
      listeners: this.#plane.listeners(),
      services: this.#plane.services(),
    };
  }

  async #set(table: OverlayTable) {
    if (this.#isDraining) throw new InputError("busy", "this overlay is draining; its successor takes the table");
    if (tableHash(table) === this.#hash) await Promise.all([this.#plane.retryNow(), this.#mesh.retryNow()]);
    else {
      await this.#enforce(table);
      await this.#keep(table);
    }
    return { version: table.version, hash: this.#hash, listeners: this.#plane.listeners() };
  }

  async #reportSetAside(copy: string, isRecovered: boolean): Promise<void> {
    const isNewer = (await readSealed(this.#options.files, copy, NewerTable)) !== undefined;
    const what = isNewer ? "is of a newer version than this overlay" : "was damaged";
    const rest = isRecovered ? "; its other copy is applied" : "";
    const message = `the overlay's last table ${what}; it was set aside as ${copy}${rest}`;
    this.#tableFault({ code: isNewer ? "newer-file" : "damaged-file", message });
  }

  async #keep(table: OverlayTable): Promise<void> {
    try {
      await this.#stored.save(table);
      this.#tableMended();
    } catch (error) {
      const message = `the overlay's table is applied but could not be saved: ${toError(error).message}`;
      this.#tableFault({ code: "table-not-kept", message });
      this.#keepLater(table);
    }
  }

  /** Retries saving the table until it is saved or replaced: after a restart an outdated table on disk would be served. */
  #keepLater(table: OverlayTable): void {
    this.#options.clock.after(KEEP_AGAIN_MS, () => {
      if (this.#isClosed || this.#table !== table) return;
      this.#stored.save(table).then(
        () => this.#tableMended(),
        () => this.#keepLater(table),
      );
    });
  }

  async #enforce(table: OverlayTable): Promise<void> {
    const isFirst = this.#table === undefined;
    if (isFirst) {
      // Inbound flows need the services, and listeners may need the tunnels.
      await this.#plane.apply({ ...table, listeners: [] });
      await this.#mesh.apply(table.mesh);
      // The successor must reach the other nodes before its predecessor disconnects from them.
      if (this.#predecessor !== undefined) await this.#mesh.settled();
    }
    await this.#plane.apply(table);
    if (!isFirst) await this.#mesh.apply(table.mesh);
    this.#table = table;
    this.#hash = tableHash(table);
    const { version, listeners } = table;
    this.#options.log.info({ version, listeners: listeners.length }, "table applied");
  }

  /** Reports a fault of the table file once, until the table is saved again. */
  #tableFault({ code, message }: OverlayFault): void {
    if (this.#isTableAtFault) return;
    this.#isTableAtFault = true;
    this.#fault({ code, message, file: TABLE_FILE });
  }

  #fault({ message, ...fault }: OverlayFault): void {
    this.#options.log.error({ ...fault, reason: message }, "fault");
    this.#notify((peer) => peer.notify("fault", { ...fault, message: message.slice(0, 1024) }));
  }

  #tableMended(): void {
    if (!this.#isTableAtFault) return;
    this.#isTableAtFault = false;
    this.#notify((peer) => peer.notify("fault.mended", { file: TABLE_FILE }));
  }

  #notify(notify: (peer: ControlPeer) => void): void {
    if (this.#subscriber === undefined) this.#undelivered = [...this.#undelivered, notify].slice(-MAX_UNDELIVERED);
    else notify(this.#subscriber);
  }

  #keepSocket(): void {
    const { clock, log, runDir, stateDir, endsWithState } = this.#options;
    let hasState = true;
    this.#sockets = keepSockets({
      clock,
      runDir,
      names: [OVERLAY_SOCKET],
      isWanted: () => {
        const before = hasState;
        hasState = !endsWithState || directoryMark(stateDir) !== undefined;
        if (!before && !hasState) this.close();
        return hasState;
      },
      serveAgain: async () => {
        await this.#control?.serveAgain();
        await writePidFile(runDir, "overlay");
      },
      onFault: (error) => {
        if (error instanceof HostError && error.code === "socket-in-use") return this.#yieldTo(error.message);
        const message = `no agent can connect to the overlay, which continues to serve: ${error.message}`;
        this.#fault({ code: "socket-lost", message, file: OVERLAY_SOCKET });
      },
      onServed: () => {
        log.info({ runDir }, "the control socket was missing and is served again");
        this.#notify((peer) => peer.notify("fault.mended", { file: OVERLAY_SOCKET }));
      },
    });
  }

  /** Yields to another overlay that was started while this one's socket was missing: it gets the ports, and this one drains. */
  #yieldTo(reason: string): void {
    this.#options.log.warn({ reason }, "replaced by another overlay");
    void this.drain(MAX_DRAIN_MS);
    this.#wasReplaced = true;
  }

  /** Never immediate, so that the caller receives its answer. The sleep keeps the process alive when no socket does. */
  async #endAfterFlows(deadline: number): Promise<void> {
    const { clock } = this.#options;
    do await clock.sleep(DRAIN_POLL_MS);
    while (this.#plane.activeFlows + this.#mesh.activeRelays > 0 && clock.elapsed() < deadline && !this.#isClosed);
    this.close();
  }
}
