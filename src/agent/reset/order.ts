import { join } from "node:path";
import { z } from "zod";
import { errnoOf } from "../../errors.ts";
import type { Files } from "../../host/files/files.ts";
import { isNoRegularFile } from "../../host/files/regular-file.ts";
import { RESET_FILE } from "../../host/files/state-directory.ts";
import { stateFile, valueOf, type StateFile } from "../../host/files/state-file.ts";
import { JsonObject, UnixMilliseconds } from "../../protocol/values/values.ts";
import type { AgentSettings } from "../settings.ts";

/** An order to reset this node. Once it is on disk, the reset comes before any other use of the state directory. */
export const ResetOrder = z.object({ factory: z.boolean(), at: UnixMilliseconds });
export type ResetOrder = z.infer<typeof ResetOrder>;

function orderFile(files: Files, stateDir: string): StateFile<ResetOrder> {
  return stateFile(files, { path: join(stateDir, RESET_FILE), schema: ResetOrder, keepsPrevious: false });
}

/** The network that a reset left applied, until a document gives another one. */
function leftNetwork(files: Files, stateDir: string): StateFile<{ readonly network: JsonObject }> {
  const schema = z.object({ network: JsonObject });
  return stateFile(files, { path: join(stateDir, "local-network.json"), schema, keepsPrevious: false });
}

/**
 * Reads the order on disk. An unreadable order counts as a plain reset, which removes less. A directory, a pipe or a device of that name is
 * no order.
 */
export async function readResetOrder(files: Files, stateDir: string): Promise<ResetOrder | undefined> {
  const found = await orderFile(files, stateDir).inspect();
  if (found.is !== "lost") return valueOf(found);
  return (await isFile(files, join(stateDir, RESET_FILE))) ? { factory: false, at: 0 } : undefined;
}

async function isFile(files: Files, path: string): Promise<boolean> {
  try {
    await files.read(path);
    return true;
  } catch (error) {
    return !(error instanceof Error) || !isNoRegularFile(errnoOf(error.cause));
  }
}

/** Writes the order to disk. An earlier order for a factory reset stays one. */
export async function orderReset(files: Files, stateDir: string, order: ResetOrder): Promise<void> {
  const given = await readResetOrder(files, stateDir);
  await orderFile(files, stateDir).save({ ...order, factory: order.factory || given?.factory === true });
}

/** Returns the settings, with the network that a reset has left applied unless they have one. */
export async function withLeftNetwork(settings: AgentSettings, files: Files): Promise<AgentSettings> {
  if (settings.network !== undefined) return settings;
  const left = valueOf(await leftNetwork(files, settings.stateDir).inspect());
  return left === undefined ? settings : { ...settings, network: left.network };
}

/** Removes the order of a completed reset. */
export async function forgetOrder(files: Files, stateDir: string): Promise<void> {
  await orderFile(files, stateDir).remove();
}

/** Saves a network for the next starts. */
export async function keepNetwork(files: Files, stateDir: string, network: JsonObject): Promise<void> {
  await leftNetwork(files, stateDir).save({ network });
}
