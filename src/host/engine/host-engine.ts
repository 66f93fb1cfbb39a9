import { z } from "zod";
import type { Clock } from "../clock.ts";
import { containers } from "./containers.ts";
import type { Engine, EngineInfo } from "./engine.ts";
import { events } from "./events.ts";
import { images } from "./images.ts";
import { networks } from "./networks.ts";
import { output } from "./output.ts";
import { parsed } from "./parse.ts";
import { terminals } from "./terminal.ts";
import { Transport } from "./transport.ts";
import { volumes } from "./volumes.ts";

const Info = z.object({
  NCPU: z.number(),
  MemTotal: z.number(),
  Architecture: z.string().default(""),
  CgroupDriver: z.string().default(""),
  CgroupVersion: z.string().default("1"),
  DockerRootDir: z.string().default(""),
  Driver: z.string().default(""),
});

/** Returns the engine at a socket: Docker, or Podman's compatible API. Connects on the first call. */
export function hostEngine(options: { readonly socketPath: string; readonly clock: Clock }): Engine {
  const transport = new Transport(options);
  return {
    version: (signal) => transport.version(signal),
    ping: (signal) => transport.ping(signal),
    async info(signal) {
      const { body } = await transport.send(
        { what: "cannot read the engine's info", method: "GET", path: "/info" },
        signal,
      );
      const { product } = await transport.version(signal);
      return info(parsed(Info, body, "the engine's info"), product);
    },
    ...containers(transport),
    ...output(transport),
    ...terminals(transport, options.clock),
    ...images(transport),
    ...volumes(transport),
    ...networks(transport),
    events: (labels, signal, onOpen = () => undefined) => events(transport, labels, signal, onOpen),
  };
}

function info(data: z.infer<typeof Info>, product: EngineInfo["product"]): EngineInfo {
  const driver = data.CgroupDriver;
  return {
    cpus: data.NCPU,
    memoryBytes: data.MemTotal,
    architecture: data.Architecture,
    cgroupDriver: driver === "systemd" || driver === "cgroupfs" ? driver : "other",
    cgroupVersion: data.CgroupVersion === "2" ? 2 : 1,
    rootDirectory: data.DockerRootDir,
    storageDriver: data.Driver,
    product,
  };
}
