import { expect, test } from "vitest";
import { controllerVerb } from "../../../src/cli/verbs/programs/controller.ts";
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
  expect(shown.filter((name) => name !== "help").sort()).toEqual([...optionNames].sort());
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
