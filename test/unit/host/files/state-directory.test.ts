import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { wipeOverlayState } from "../../../../src/host/overlay/reset.ts";
import {
  requireOwner,
  requireUnused,
  wipeableState,
  wipeEverything,
  wipeState,
} from "../../../../src/host/files/state-directory.ts";
import { someDirectories } from "../../../support/local-agent.ts";

describe("deleting the node's state", () => {
  it("removes only the node's own state", async () => {
    await using dirs = await someDirectories();
    for (const name of ["identity", "desired", "data-store", "mine", "overlay"])
      mkdirSync(join(dirs.stateDir, name), { recursive: true });
    writeFileSync(join(dirs.stateDir, "identity", "auth.json"), "{}");
    for (const name of ["state.db", "state.db-wal", "state.db.damaged", "notes.txt"])
      writeFileSync(join(dirs.stateDir, name), "");
    expect(wipeableState(dirs.stateDir)).toEqual([
      "overlay",
      "desired",
      "state.db",
      "state.db-wal",
      "state.db.damaged",
      "identity",
    ]);
    expect(await wipeState(dirs.stateDir)).toHaveLength(6);
    expect(readdirSync(dirs.stateDir).sort()).toEqual(["data-store", "mine", "notes.txt"]);
    expect(await wipeState(dirs.stateDir)).toEqual([]);
  });

  it("removes a link and not its target", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    const elsewhere = join(dirs.root, "elsewhere");
    mkdirSync(elsewhere);
    writeFileSync(join(elsewhere, "precious"), "");
    symlinkSync(elsewhere, join(dirs.stateDir, "identity"));
    await wipeState(dirs.stateDir);
    expect(existsSync(join(elsewhere, "precious"))).toBe(true);
    expect(readdirSync(dirs.stateDir)).toEqual([]);
  });
});

describe("deleting all state", () => {
  const { signal } = new AbortController();

  it("leaves the request to do so and the file system's own files", async () => {
    await using dirs = await someDirectories();
    for (const name of ["identity", "desired", "data-store/volumes/db", "lost+found", "dhcp"])
      mkdirSync(join(dirs.stateDir, name), { recursive: true });
    for (const name of ["reset.json", "state.db", "network.json", "data-store/volumes/db/file"])
      writeFileSync(join(dirs.stateDir, name), "");
    const { removed, left } = await wipeEverything(dirs.stateDir, signal);
    expect(left).toEqual([]);
    expect(removed.toSorted()).toEqual(["data-store", "desired", "dhcp", "identity", "network.json", "state.db"]);
    expect(readdirSync(dirs.stateDir).sort()).toEqual(["lost+found", "reset.json"]);
  });

  it("removes a link and not its target", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    const elsewhere = join(dirs.root, "elsewhere");
    mkdirSync(elsewhere);
    writeFileSync(join(elsewhere, "precious"), "");
    symlinkSync(elsewhere, join(dirs.stateDir, "data-store"));
    await wipeEverything(dirs.stateDir, signal);
    expect(existsSync(join(elsewhere, "precious"))).toBe(true);
    expect(readdirSync(dirs.stateDir)).toEqual([]);
  });
});

describe("an overlay's own directory", () => {
  it("loses its files and stays", async () => {
    await using dirs = await someDirectories();
    mkdirSync(join(dirs.stateDir, "deep"), { recursive: true });
    writeFileSync(join(dirs.stateDir, "table.json"), "{}");
    mkdirSync(join(dirs.root, "precious"));
    writeFileSync(join(dirs.root, "precious", "file"), "");
    symlinkSync(join(dirs.root, "precious"), join(dirs.stateDir, "link"));
    expect((await wipeOverlayState(dirs.stateDir)).toSorted()).toEqual([
      join(dirs.stateDir, "link"),
      join(dirs.stateDir, "table.json"),
    ]);
    expect(readdirSync(dirs.stateDir)).toEqual(["deep"]);
    expect(readdirSync(join(dirs.root, "precious"))).toEqual(["file"]);
    expect(await wipeOverlayState(join(dirs.root, "none"))).toEqual([]);
  });
});

describe("the state directory", () => {
  it("is in use while an agent holds its database", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    requireUnused(dirs.stateDir);
    const database = openDatabase(join(dirs.stateDir, "state.db"), {
      migrations: ["CREATE TABLE t (x)"],
      exclusive: true,
    });
    expect(() => requireUnused(dirs.stateDir)).toThrow(expect.objectContaining({ code: "state-locked" }));
    database.sql.close();
    requireUnused(dirs.stateDir);
  });

  it("is not in use when its database is only damaged", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.stateDir);
    writeFileSync(join(dirs.stateDir, "state.db"), "not a database, but long enough to be looked at".repeat(50));
    requireUnused(dirs.stateDir);
  });

  it("must exist", async () => {
    await using dirs = await someDirectories();
    expect(() => requireOwner(dirs.stateDir)).toThrow(expect.objectContaining({ code: "not-found" }));
    mkdirSync(dirs.stateDir);
    requireOwner(dirs.stateDir);
  });
});
