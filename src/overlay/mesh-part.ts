import type { Logger } from "pino";
import { InputError, SessionError, toError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { Files } from "../host/files/files.ts";
import type { MeshEvent, MeshState, OverlayMesh, RttBucket } from "../protocol/overlay/mesh.ts";
import type { OverlayFault, OverlayMethods } from "../protocol/overlay/overlay.ts";
import type { Handlers } from "../protocol/channel/rpc.ts";
import type { ControlPeer } from "./control.ts";
import type { DataPlane } from "./data-plane.ts";
import { MeshReports } from "./mesh-reports.ts";
import type { Mesh } from "./mesh/mesh.ts";
import type { AskName } from "./dial/name-cache.ts";

export interface MeshPartOptions {
  readonly plane: DataPlane;
  readonly stateDir: string;
  readonly clock: Clock;
  readonly files: Files;
  readonly log: Logger;
  readonly askName: AskName;
  readonly localAddresses: () => readonly string[];
  readonly onFault: (fault: OverlayFault) => void;
  /** Called with each mesh: tunnels need the compiled code from their first handshake on. */
  readonly onMesh: () => void;
  /** Called with the first stream from another node. */
  readonly onFirstFlow: () => void;
  /** Called every minute while there is a mesh. */
  readonly makeRoom: () => void;
}

const NO_MESH: MeshState = {
  paths: [],
  clients: [],
  sessions: [],
  server: { state: "off", refused: {}, relays: { active: 0, total: 0, bytes: 0 } },
};
const IDENTITY_FILE = "identity.json";
const MAX_PERFS = 1;
const ROOM_MS = 60_000;

/** Loads the mesh on first use, so that a node without peers does not load TLS and HTTP/2. */
export class MeshPart {
  readonly reports: MeshReports;
  readonly #options: MeshPartOptions;
  readonly #perfs = new Map<string, AbortController>();
  #mesh: Mesh | undefined;
  #loading: Promise<Mesh> | undefined;
  #subscriber: ControlPeer | undefined;
  #isClosed = false;
  #hadStreams = false;
  #cancelRoom: (() => void) | undefined;

  constructor(options: MeshPartOptions) {
    this.#options = options;
    this.reports = new MeshReports(options.clock, () => this.#mesh?.state() ?? NO_MESH);
  }

  /** Applies a mesh, or ends the current one. */
  async apply(mesh: OverlayMesh | undefined): Promise<void> {
    if (mesh === undefined && this.#loading === undefined) return;
    if (mesh !== undefined) this.#work();
    const loaded = await this.#load();
    if (!this.#isClosed) await loaded.apply(mesh);
  }

  /** Resolves when the state of every path is known, at the latest after 5 s. */
  async settled(): Promise<void> {
    await this.#mesh?.settled();
  }

  deliverTo(subscriber: ControlPeer | undefined): void {
    this.#subscriber = subscriber;
    this.reports.deliverTo(subscriber);
  }

  /** Handlers for the agent's mesh requests. */
  handlers(): Handlers<OverlayMethods> {
    return {
      "identity.set": async (identity) => {
        const { notKept } = await (await this.#load()).setIdentity(identity);
        if (notKept !== undefined) this.#identityFault("identity-not-kept", notKept);
        return {};
      },
      "mesh.get": () => this.#mesh?.state() ?? NO_MESH,
      "mesh.wake": () => {
        this.#mesh?.wake();
        return {};
      },
      echo: (request) => this.#required().measure.echo(request),
      "perf.run": (request) => this.#perf(request),
      "perf.cancel": ({ id }) => {
        this.#perfs.get(id)?.abort();
        return {};
      },
    };
  }

  /** Stops accepting; running flows continue. */
  async drain(): Promise<void> {
    await this.#mesh?.drain();
  }

  /** Number of streams relayed between other nodes. */
  get activeRelays(): number {
    return this.#mesh?.activeRelays ?? 0;
  }

  /** Retries the gateway's failed listeners. */
  async retryNow(): Promise<void> {
    await this.#mesh?.retryNow();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelRoom?.();
    for (const perf of this.#perfs.values()) perf.abort();
    this.#mesh?.close();
    this.reports.close();
  }

  #work(): void {
    const { clock, onMesh, makeRoom } = this.#options;
    onMesh();
    const again = (): void => {
      makeRoom();
      this.#cancelRoom = clock.after(ROOM_MS, again);
    };
    this.#cancelRoom?.();
    again();
  }

  #carry(): void {
    if (this.#hadStreams) return;
    this.#hadStreams = true;
    this.#options.onFirstFlow();
  }

  #load(): Promise<Mesh> {
    this.#loading ??= this.#open();
    return this.#loading;
  }

  async #open(): Promise<Mesh> {
    const { Mesh: LoadedMesh } = await import("./mesh/mesh.ts");
    const { plane, stateDir, files, askName, localAddresses, log } = this.#options;
    const mesh = new LoadedMesh({
      local: plane.local,
      files,
      stateDir,
      askName,
      localAddresses,
      random: Math.random,
      onStream: () => this.#carry(),
      onChanged: () => this.reports.changed(),
      onEvent: (event: MeshEvent) => {
        log.info(event, "mesh");
        this.reports.events([event]);
      },
      onBuckets: (buckets: readonly RttBucket[]) => this.reports.buckets(buckets),
    });
    const damagedCopy = await mesh.loadIdentity();
    if (damagedCopy !== undefined) {
      const message = `the overlay's key was damaged; it was set aside as ${damagedCopy}, and the agent will send it again`;
      this.#options.onFault({ code: "damaged-file", message, file: IDENTITY_FILE });
    }
    plane.connectTo(mesh.remote);
    this.#mesh = mesh;
    return mesh;
  }

  #required(): Mesh {
    if (this.#mesh === undefined) throw new InputError("not-found", "this node has no peers");
    return this.#mesh;
  }

  async #perf({ id, ...request }: Parameters<NonNullable<Handlers<OverlayMethods>["perf.run"]>>[0]) {
    const mesh = this.#required();
    if (this.#perfs.size >= MAX_PERFS) throw new SessionError("busy", "another measurement is running");
    const controller = new AbortController();
    this.#perfs.set(id, controller);
    try {
      const onProgress = (bytes: number): void => this.#subscriber?.notify("perf.progress", { id, bytes, lost: 0 });
      return await mesh.measure.perf({ ...request, signal: controller.signal, onProgress });
    } finally {
      this.#perfs.delete(id);
    }
  }

  #identityFault(code: string, cause: unknown): void {
    const message = `the overlay's key is applied but could not be saved: ${toError(cause).message}`;
    this.#options.onFault({ code, message, file: IDENTITY_FILE });
  }
}
