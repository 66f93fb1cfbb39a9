import { HostError } from "../../../errors.ts";
import type { Engine, VolumeSummary } from "../../../host/engine/engine.ts";

/** A volume of the engine that binds a directory. */
export interface BoundVolume {
  readonly engineName: string;
  readonly directory: string;
}

const OWNER_LABEL = "io.holdfast.owner";

/** Cached list of the engine's volumes with our label. @throws {HostError} as the engine */
export class EngineVolumes {
  readonly #engine: Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">;
  readonly #owner: string;
  #known: Map<string, VolumeSummary> | undefined;

  constructor(engine: Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">, owner: string) {
    this.#engine = engine;
    this.#owner = owner;
  }

  /** Invalidates the cache. */
  forget(): void {
    this.#known = undefined;
  }

  /** Lists the engine's volumes unless cached. */
  async list(signal: AbortSignal): Promise<void> {
    if (this.#known !== undefined) return;
    const volumes = await this.#engine.listVolumes([`${OWNER_LABEL}=${this.#owner}`], signal);
    this.#known = new Map(volumes.map((volume) => [volume.name, volume]));
  }

  /** Reports whether the engine has our volume for this directory. */
  has({ engineName, directory }: BoundVolume): boolean {
    return this.#known?.get(engineName)?.driverOptions["device"] === directory;
  }

  /**
   * Creates the volume if absent; returns whether it was created. The engine may return a stranger's volume of that name: list again.
   * @throws {HostError} as the engine does, and as `remove`.
   */
  async ensure(volume: BoundVolume, signal: AbortSignal): Promise<boolean> {
    if (this.has(volume)) return false;
    // Ours, but for another directory: the data store has moved.
    await this.remove(volume, signal);
    await this.#engine.createVolume(
      {
        name: volume.engineName,
        driver: "local",
        driverOptions: { type: "none", o: "bind", device: volume.directory },
        labels: { [OWNER_LABEL]: this.#owner },
      },
      signal,
    );
    return true;
  }

  /**
   * Removes one of our volumes; succeeds if it does not exist. The directory's content stays.
   * @throws {HostError} `volume-in-engine` for one that binds no directory: its files are the engine's, and would go with it.
   */
  async remove({ engineName, directory }: BoundVolume, signal: AbortSignal): Promise<void> {
    const known = this.#known?.get(engineName);
    if (known === undefined) return;
    const { o, device } = known.driverOptions;
    if (o !== "bind" || device === undefined) {
      throw new HostError(
        "volume-in-engine",
        `the engine keeps the files of volume ${engineName} itself, in ${known.mountpoint || "a directory of its own"}, ` +
          `instead of ${directory}: copy what is needed there, remove the containers that use it, ` +
          `and remove the volume (docker volume rm ${engineName})`,
      );
    }
    try {
      await this.#engine.removeVolume(engineName, signal);
    } catch (error) {
      if (!(error instanceof HostError && error.details?.["status"] === 404)) throw error;
    }
    this.#known?.delete(engineName);
  }
}
