import type { Logger } from "pino";
import type { MeshEvent, RttBucket } from "../../protocol/overlay/mesh.ts";
import type { OverlayFault, OverlayFlow, ServiceHealth } from "../../protocol/overlay/overlay.ts";
import type { Clock } from "../clock.ts";
import type { Files } from "../files/files.ts";
import type { StartOverlay } from "./process.ts";
import type { MeshStanding } from "./table.ts";

/** Whether an overlay serves, and since when that is so, in Unix milliseconds. `off` means that nothing asks for one. */
export interface OverlayStatus {
  readonly state: "up" | "down" | "off";
  readonly since: number;
  readonly pid?: number;
  readonly reason?: string;
}

export interface OverlayOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly files: Pick<Files, "list" | "makeDirectory">;
  readonly stateDir: string;
  readonly runDir: string;
  /** Absent where a service manager keeps the overlay running. */
  readonly start?: StartOverlay;
  /** Something is otherwise than it was seen last: a listener, a service, or the whole overlay. */
  readonly onChanged: (what: string) => void;
  /** How services were seen to stand, changed or not. */
  readonly onHealth: (services: readonly ServiceHealth[]) => void;
  readonly onFlows: (flows: readonly OverlayFlow[]) => void;
  /** How the ways to other nodes stand; undefined when nobody can tell. */
  readonly onMesh?: (standing: MeshStanding | undefined) => void;
  readonly onMeshEvents?: (events: readonly MeshEvent[]) => void;
  readonly onRtt?: (buckets: readonly RttBucket[]) => void;
  readonly onFault: (fault: OverlayFault) => void;
  /** What a fault said of a file of the overlay's state is over. */
  readonly onMended: (file: string) => void;
}
