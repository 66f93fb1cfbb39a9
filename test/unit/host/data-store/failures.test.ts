import { describe, expect, test } from "vitest";
import { HostError, InputError } from "../../../../src/errors.ts";
import { storeFailure } from "../../../../src/host/data-store/failures.ts";

const failed = (code: string): Error => Object.assign(new Error(`${code}: what Node says`), { code });

describe("a failed call", () => {
  test.each([
    ["ENOENT", "not-found"],
    ["ENOTDIR", "not-a-directory"],
    ["EISDIR", "not-a-file"],
    ["EEXIST", "exists"],
    ["ELOOP", "forbidden-path"],
    ["EACCES", "forbidden-path"],
    ["EPERM", "forbidden-path"],
    ["EBUSY", "in-use"],
    ["ENAMETOOLONG", "bad-path"],
  ])("with %s is the caller's fault: %s", (errno, code) => {
    const error = storeFailure(failed(errno), 'open "a"');
    expect(error).toBeInstanceOf(InputError);
    expect(error).toMatchObject({ code });
    expect(error.message).toMatch(/^cannot open "a": /);
  });

  test.each([
    ["ENOSPC", "disk-full", "no space is left on the disk"],
    ["EDQUOT", "disk-full", "the disk quota is exhausted"],
    ["Unknown system error -122", "disk-full", "the disk quota is exhausted"],
    ["EROFS", "read-only", "the file system is read-only"],
    ["EIO", "storage-failed", "the disk has an error (EIO)"],
    ["EMFILE", "storage-failed", "the system reports EMFILE"],
    ["Unknown system error -116", "storage-failed", "the system reports ESTALE"],
  ])("with %s is the machine's fault: %s", (errno, code, why) => {
    const error = storeFailure(failed(errno), 'open "a"');
    expect(error).toBeInstanceOf(HostError);
    expect(error).toMatchObject({ code, message: `cannot open "a": ${why}` });
  });

  test("with an explicit class stays unchanged, and so does an abort", () => {
    const own = new InputError("not-found", "x");
    const aborted = AbortSignal.abort().reason as unknown;
    const node = failed("ERR_INVALID_ARG_TYPE");
    expect([own, aborted, node].map((error) => storeFailure(error, "x"))).toEqual([own, aborted, node]);
  });
});
