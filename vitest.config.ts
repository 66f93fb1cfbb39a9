import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { UNDER_UNITS } from "./test/support/machine/real-units.ts";
import { durationKey, readDurations, RunReporter } from "./test/support/run-reporter.ts";
import { SEED } from "./test/support/sample.ts";
import { NOT_ON_POSTGRES, ON_POSTGRES } from "./test/support/control-plane/on-postgres.ts";
import { LEFT_OUT } from "./test/support/machine/units-left-out.ts";

/** Files that take as many seconds begin before all others, so that the workers end together. */
const LONG_SECONDS = 30;

const LAYERS = ["e2e", "integration", "unit", "postgres"];

/** Begins with the longest files; after them one layer follows the other, since a worker is started anew for each change of the project. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const durations = readDurations();
    const ranked = (await super.sort(files)).map((file) => {
      const seconds = durations.get(durationKey(file.moduleId)) ?? 0;
      return { file, seconds, layer: seconds < LONG_SECONDS ? LAYERS.indexOf(file.project.name) : -1 };
    });
    return ranked.sort((a, b) => a.layer - b.layer || b.seconds - a.seconds).map(({ file }) => file);
  }
}

// Tests mostly wait: for children, for sockets, for the disk, for a lease or a window. Two workers more than the two cores of a small machine
// keep both busy.
const maxWorkers = 4;

// What never comes takes so long to fail; a machine that is busy with other work may take minutes for a second.
const expectations = { poll: { timeout: 120_000 } };

const RUN_DIRECTORY = "test/support/run-directory.ts";
const LEAVES_NOTHING = "test/support/process-wide.ts";

const leftOut = UNDER_UNITS ? LEFT_OUT : [];
const leftOutTests = leftOut.flatMap(({ tests = [] }) => tests);

/** Leaves tests out by parts of their names. */
const namedOtherwise = (parts: readonly string[]) => ({ testNamePattern: new RegExp(`^(?!.*(?:${parts.join("|")}))`) });

// No module keeps state and none is mocked: nothing is isolated, since loading them anew for each file takes a second.
const common = {
  testTimeout: 300_000,
  hookTimeout: 300_000,
  expect: expectations,
  env: { HOLDFAST_TEST_SEED: SEED },
  maxWorkers,
  isolate: false,
};

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    reporters: ["default", new RunReporter(SEED)],
    globalSetup: RUN_DIRECTORY,
    projects: [
      {
        test: {
          ...common,
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          setupFiles: [LEAVES_NOTHING, "test/support/no-processes.ts"],
        },
      },
      {
        test: {
          ...common,
          name: "integration",
          include: ["test/integration/**/*.test.ts"],
          setupFiles: LEAVES_NOTHING,
        },
      },
      {
        test: {
          ...common,
          name: "postgres",
          include: [...ON_POSTGRES],
          exclude: ["http/**", "store/**", "access/own-permission.test.ts"].map(
            (name) => `test/unit/controller/${name}`,
          ),
          ...namedOtherwise(NOT_ON_POSTGRES),
          setupFiles: LEAVES_NOTHING,
          globalSetup: [RUN_DIRECTORY, "test/support/control-plane/postgres-project.ts"],
        },
      },
      {
        test: {
          ...common,
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          exclude: leftOut.flatMap(({ file, tests }) => (tests === undefined ? [file] : [])),
          ...(UNDER_UNITS ? namedOtherwise(leftOutTests) : {}),
          setupFiles: LEAVES_NOTHING,
        },
      },
    ],
  },
});
