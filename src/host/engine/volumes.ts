import { z } from "zod";
import type { Engine } from "./engine.ts";
import { inPath, labelled, parsed, TextMap } from "./parse.ts";
import type { Transport } from "./transport.ts";

type Volumes = Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">;

const Volume = z.object({
  Name: z.string(),
  Driver: z.string().default("local"),
  Mountpoint: z.string().default(""),
  Options: TextMap,
  Labels: TextMap,
});
const List = z.object({ Volumes: z.array(Volume).nullish() });

const CHANGE_MS = 30_000;

/** The Engine API's volume calls; lists only volumes of the driver `local`. */
export function volumes(transport: Transport): Volumes {
  return {
    async listVolumes(labels, signal) {
      const call = { what: "cannot list volumes", method: "GET", path: "/volumes", query: labelled(labels) } as const;
      const { body } = await transport.send(call, signal);
      const found = parsed(List, body, "the engine's list of volumes").Volumes ?? [];
      return found
        .filter(({ Driver }) => Driver === "local")
        .map((volume) => ({
          name: volume.Name,
          driver: "local",
          driverOptions: volume.Options,
          labels: volume.Labels,
          mountpoint: volume.Mountpoint,
        }));
    },
    async createVolume({ name, driver, driverOptions, labels }, signal) {
      const what = `cannot create volume ${name}`;
      const body = { Name: name, Driver: driver, DriverOpts: driverOptions, Labels: labels };
      await transport.send({ what, method: "POST", path: "/volumes/create", body, deadlineMs: CHANGE_MS }, signal);
    },
    async removeVolume(name, signal) {
      const what = `cannot remove volume ${name}`;
      const path = `/volumes/${inPath(name)}`;
      await transport.send({ what, method: "DELETE", path, accepts: [404], deadlineMs: CHANGE_MS }, signal);
    },
  };
}
