import { HostError } from "../../../errors.ts";
import type { Engine, VolumeSummary } from "../../../host/engine/engine.ts";

/** A volume of the engine that binds a directory. */
export interface BoundVolume {
  readonly engineName: string;
  readonly directory: string;
}

const OWNER_LABEL = "io.holdfast.owner";

/** Volumes of the engine that carry our label, known after one list. @throws {HostError} as the engine does. */
export class EngineVolumes {
  readonly #engine: Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">;
  readonly #owner: string;
  #known: Map<string, VolumeSummary> | undefined;

  constructor(engine: Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">, owner: string) {
    this.#engine = engine;
    this.#owner = owner;
  }

  /** Lets the next `list` ask again. */
  forget(): void {
    this.#known = undefined;
  }

  /** Asks the engine what it has, unless that is known. */
  async list(signal: AbortSignal): Promise<void> {
    if (this.#known !== undefined) return;
    const volumes = await this.#engine.listVolumes([`${OWNER_LABEL}=${this.#owner}`], signal);
    this.#known = new Map(volumes.map((volume) => [volume.name, volume]));
  }

  /** Whether the engine has it, ours and for this directory. */
  has({ engineName, directory }: BoundVolume): boolean {
    return this.#known?.get(engineName)?.driverOptions["device"] === directory;
  }

  /**
   * Makes it unless it is there; true when it had to be made. The engine may answer with a stranger's of that name: list it again.
   * @throws {HostError} as the engine does, and as `remove`.
   */
  async ensure(volume: BoundVolume, signal: AbortSignal): Promise<boolean> {
    if (this.has(volume)) return false;
    // One of ours for another directory: the data store has moved.
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
   * Removes one of ours; one that is not there is fine. What a directory has in it stays.
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
