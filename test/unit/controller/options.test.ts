import { expect, test } from "vitest";
import { controllerVerb } from "../../../src/cli/verbs/programs/controller.ts";
import { readOrder, taskOptionNames } from "../../../src/controller/maintenance/tasks.ts";
import { optionNames, readOptions } from "../../../src/controller/options.ts";

test("without options it serves on loopback and keeps its pid beside its state", () => {
  const data = "/var/lib/holdfast-controller";
  expect(readOptions([])).toEqual({ listen: "127.0.0.1:8480", dataDir: data, runDir: data, frontPins: [] });
});

test("front pins come one by one or in a list", () => {
  expect(readOptions(["--front-pin", "a,b", "--front-pin", "c"]).frontPins).toEqual(["a", "b", "c"]);
});

test.each([
  [["--lisen", "x"], "did you mean --listen?"],
  [["--bogus"], "holdfast controller --help"],
  [["-x"], "holdfast controller --help"],
  [["--tls=yes"], "--tls"],
  [["--listen"], "--listen"],
  [["--mock", "--data", "/tmp/x"], "--data: a mock keeps nothing; remove --data or --mock"],
  [["--mock", "--store", "postgres://a@b/c"], "--store: a mock keeps nothing"],
  [["--secret-overlap", "1h"], '--secret-overlap: must be a whole number of seconds, not "1h"'],
  [["--listen", "--tls"], "--listen"],
  [["--node-keys", "pem"], "use text or jwk"],
  [["extra"], "extra"],
])("%j is a mistake that is named", (argv, says) => {
  expect(() => readOptions(argv)).toThrow(expect.objectContaining({ code: "usage" }) as Error);
  expect(() => readOptions(argv)).toThrow(says);
});

test("the help shows every option there is", () => {
  const shown = Object.keys(controllerVerb.options);
  expect(shown.filter((name) => name !== "help").sort()).toEqual(
    [...new Set([...optionNames, ...taskOptionNames])].sort(),
  );
});

test("the help names the defaults that are in force", () => {
  const { listen, dataDir } = readOptions([]);
  const options = controllerVerb.options;
  expect(options["listen"]?.help).toContain(`(${listen})`);
  expect(options["data"]?.help).toContain(`(${dataDir})`);
});

test("--mock is a setting", () => {
  expect(readOptions(["--mock"])).toMatchObject({ isMock: true });
  expect(readOptions([])).not.toHaveProperty("isMock");
});

test.each([
  ["backup", [], "backup takes one FILE"],
  ["backup", ["a", "b"], "backup takes one FILE"],
  ["backup", ["a", "--replace"], "no option --replace"],
  ["restore", ["a", "--repalce"], "did you mean --replace?"],
  ["restore", ["a", "--store", "mysql://a"], "--store: not the address"],
  ["restore", ["a", "--store-ca-file", "b"], "--store-ca-file: requires a PostgreSQL --store"],
  ["migrate", ["--from", "sqlite"], "migrate needs both stores"],
  ["migrate", ["--from", "mysql://a", "--to", "sqlite"], "--from: not the address"],
  ["migrate", ["--from", "sqlite", "--to", "postgres://u:p@db/s"], "give --to-password-file"],
  ["migrate", ["x", "--from", "sqlite", "--to", "sqlite"], "argument 'x'"],
  ["migrate", ["--from", "sqlite", "--to", "sqlite", "--from-password-file", "b"], "--from-password-file: requires"],
] as const)("%s %j is refused", (task, argv, says) => {
  expect(() => readOrder(task, argv)).toThrow(says);
});

test("the stores of a migration are read with their own files", () => {
  const argv = [
    "--from",
    "sqlite",
    "--to",
    "postgres://u@h/d",
    "--to-password-file",
    "p",
    "--data",
    "/a",
    "--to-data",
    "/b",
  ];
  const address = { host: "h", port: 5432, user: "u", database: "d", isVerified: true };
  expect(readOrder("migrate", argv)).toEqual({
    task: "migrate",
    isReplaced: false,
    from: { dataDir: "/a", postgres: undefined },
    to: { dataDir: "/b", postgres: { address, option: "to", passwordFile: "p", caFile: undefined } },
  });
});
