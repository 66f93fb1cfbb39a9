import { randomBytes } from "node:crypto";
import { accessSync, constants } from "node:fs";
import { chmod, rename, rm, symlink, writeFile } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { z } from "zod";
import { errnoOf, HostError, InputError, toError } from "../../../errors.ts";
import { Text4096 } from "../../../protocol/values/values.ts";
import type { Exec } from "../../process/exec.ts";
import { resolverFileCommand } from "../../process/privileged-exec.ts";
import { RESOLVER_FILES } from "../../net/resolver.ts";
import { refusal, toolRunner } from "../ip/tool.ts";

/** Limit of an earlier text that is stored and restored, in bytes. */
export const MAX_RESOLVER_BYTES = 65_536;
/** Limit of a change as JSON, in bytes. */
export const MAX_CHANGE_BYTES = 8 * MAX_RESOLVER_BYTES;

/** Permission bits; never set-user-ID, and never world-writable. */
const Mode = z
  .int()
  .min(0)
  .max(0o777)
  .transform((mode) => mode & ~0o002);
/** Refuses a link through which a program that writes resolv.conf would reach another file. */
const Target = Text4096.refine(
  (target) => basename(target).includes("resolv"),
  "the link would lead to a file that is no resolv.conf(5)",
);

/** The new state of resolv.conf(5). */
export const ResolverFileChange = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("text"), text: z.string().max(2 * MAX_RESOLVER_BYTES), mode: Mode }),
  z.strictObject({ kind: z.literal("link"), target: Target }),
  z.strictObject({ kind: z.literal("absent"), mode: Mode }),
]);
export type ResolverFileChange = z.infer<typeof ResolverFileChange>;

/** Changes resolv.conf(5). @throws {HostError} `resolver-failed`, and errors of `Exec.run`. */
export type ChangeResolverFile = (change: ResolverFileChange, signal: AbortSignal) => Promise<void>;

/** The verb that changes the file in a unit of its own. */
const RESOLVER_FILE_VERB = "resolver-file";

/**
 * Changes the file at `path` directly. In a managed install, whose unit may not write there, a unit that can write nothing else
 * does it.
 */
export function resolverFile(exec: Pick<Exec, "run">, path: string, isManaged: boolean): ChangeResolverFile {
  const tools = toolRunner(exec);
  return async (change, signal) => {
    if (!isManaged || path !== RESOLVER_FILES[0] || !isReadOnly(dirname(path))) return changeResolverFile(path, change);
    const [runtime = process.execPath, entry = ""] = process.argv;
    const { file, args } = resolverFileCommand(dirname(path), {
      file: runtime,
      args: [...process.execArgv, entry, RESOLVER_FILE_VERB],
    });
    const done = await tools.run(file, args, signal, JSON.stringify(change));
    if (done.exitCode !== 0) throw refusal("resolver-failed", RESOLVER_FILE_VERB, done);
  };
}

/** Parses a change from another process. @throws {InputError} `invalid-change`. */
export function parseResolverFileChange(text: string): ResolverFileChange {
  try {
    return ResolverFileChange.parse(JSON.parse(text));
  } catch (cause) {
    const reason = cause instanceof z.ZodError ? z.prettifyError(cause) : "it is not JSON";
    throw new InputError("invalid-change", `invalid change of the resolver's file: ${reason}`, { cause });
  }
}

/** Changes the file at `path`. @throws {HostError} `resolver-failed`. */
export async function changeResolverFile(path: string, change: ResolverFileChange): Promise<void> {
  switch (change.kind) {
    case "text":
      return replace(path, change.text, change.mode);
    case "link":
      return link(path, change.target);
    case "absent":
      return rm(path, { force: true }).catch(async (error: unknown) => {
        if (errnoOf(error) !== "EBUSY") throw resolverFailed(path, error);
        await replace(path, "", change.mode);
      });
  }
}

/** Returns the error of a failed change of the file at `path`. */
export function resolverFailed(path: string, cause: unknown): HostError {
  return new HostError("resolver-failed", `cannot set the name servers in ${path}: ${toError(cause).message}`, {
    cause,
    details: { path },
  });
}

async function link(path: string, target: string): Promise<void> {
  const temporary = temporaryOf(path);
  try {
    await symlink(target, temporary);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw resolverFailed(path, error);
  }
}

/** Replaces the file atomically, or in place if it is a mount of its own, as in a container. */
async function replace(path: string, text: string, mode: number): Promise<void> {
  const temporary = temporaryOf(path);
  try {
    await writeFile(temporary, text, { mode, flag: "wx", flush: true });
    // The umask makes our files private, but this one is public.
    await chmod(temporary, mode);
    await rename(temporary, path);
    return;
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    if (!["EBUSY", "EROFS", "EACCES", "EPERM"].includes(errnoOf(error) ?? "")) throw resolverFailed(path, error);
  }
  await writeFile(path, text, { flush: true }).catch((error: unknown) => {
    throw resolverFailed(path, error);
  });
}

const temporaryOf = (path: string): string => `${path}.${randomBytes(6).toString("hex")}.tmp`;

function isReadOnly(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK);
    return false;
  } catch (error) {
    return errnoOf(error) === "EROFS";
  }
}
