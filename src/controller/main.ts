import { parseArgs } from "node:util";
import { AgentError, InputError, toError } from "../errors.ts";
import { rootLogger, standardOutput } from "../host/log.ts";
import { writePidFile } from "../host/pid-file.ts";
import { makeRunDirectory } from "../host/unix-socket.ts";
import { buildInfo } from "../lib/build-info.ts";
import { startController, type ControllerOptions } from "./controller.ts";

const DEFAULT_LISTEN = "127.0.0.1:8480";
const DEFAULT_DATA = "/var/lib/holdfast-controller";

/** Runs `holdfast controller` until it is told to stop; resolves to the exit status. */
export async function run(argv: readonly string[]): Promise<number> {
  process.umask(0o077);
  try {
    const { log } = rootLogger({ level: "info", destination: standardOutput() });
    const { runDir, ...options } = readOptions(argv);
    const controller = await startController({ ...options, log });
    await makeRunDirectory(runDir);
    const pidFile = await writePidFile(runDir, "controller");
    log.info(
      { version: buildInfo.version, url: controller.url, adminKey: controller.adminKeyPath },
      "controller started",
    );
    await new Promise<void>((resolve) => {
      const stop = (): void => resolve();
      process.once("SIGTERM", stop).once("SIGINT", stop);
    });
    await controller.close();
    pidFile.remove();
    log.info("controller stopped");
    return 0;
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast controller: ${error.message}\n`);
    const isUsage = error instanceof InputError && (error.code === "usage" || error.code === "invalid-settings");
    return isUsage ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

function readOptions(argv: readonly string[]): Omit<ControllerOptions, "log"> & { readonly runDir: string } {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        listen: { type: "string", default: DEFAULT_LISTEN },
        data: { type: "string", default: DEFAULT_DATA },
        url: { type: "string" },
        domain: { type: "string" },
        "tls-cert": { type: "string" },
        "tls-key": { type: "string" },
        tls: { type: "boolean", default: false },
        "front-pin": { type: "string", multiple: true, default: [] },
        state: { type: "string" },
        run: { type: "string" },
      },
      strict: true,
      allowPositionals: false,
    });
    return {
      listen: values.listen,
      dataDir: values.data,
      // A controller needs no other run directory, and without root it could not make the default one.
      runDir: values.run ?? values.data,
      ...(values.url === undefined ? {} : { publicUrl: values.url }),
      ...(values.domain === undefined ? {} : { domain: values.domain }),
      ...(values["tls-cert"] === undefined ? {} : { tlsCert: values["tls-cert"] }),
      ...(values["tls-key"] === undefined ? {} : { tlsKey: values["tls-key"] }),
      frontPins: values["front-pin"].flatMap((text) => text.split(",")).filter((pin) => pin !== ""),
      ...(values.tls ? { tls: "self" as const } : {}),
    };
  } catch (error) {
    throw new InputError("usage", toError(error).message, { cause: error });
  }
}
