import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { UNDER_UNITS } from "./test/support/real-units.ts";
import { LEFT_OUT } from "./test/support/units-left-out.ts";

/** What takes longest begins first, so that the workers end together; the order of the others is vitest's own. */
const LONGEST: readonly RegExp[] = [
  /unit\/overlay\/mesh-succession/,
  /unit\/host\/network\/dhcp\./,
  /unit\/overlay\/mesh\/paths\/paths/,
  /unit\/agent\/reconcile\/commit\./,
  /unit\/overlay\/(overlay|overlay-mesh|mesh\/peers\/many)\./,
  /e2e\/installed\./,
  /e2e\/(upgrade-judged|network-interrupted|containers-engine|network-wan-dhcp)\./,
  /e2e\/(packages-killed|packages|upgrade-kill-points|upgrade-fetch|data-store-s3|see-network|setup)\./,
  /e2e\/(disk|mesh-gateways|limits|network-dhcp|containers-reached|containers-images|mesh-nodes)\./,
  /e2e\/(checkpoint|network-(taken-back|faults)|mesh-(restarts|tools)|names-and-addresses|cli\/agent-faults)\./,
  /e2e\/(network-(lease|lease-killed|strangers|owner|forward-drops|kill-points)|containers(-killed)?|guard|clock|overlay-killed|cli\/help)\./,
];

const rank = ({ moduleId }: TestSpecification): number => {
  const at = LONGEST.findIndex((path) => path.test(moduleId));
  return at === -1 ? LONGEST.length : at;
};

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

// Tests mostly wait: for children, for sockets, for the disk, for a lease or a window. Two workers more than the two cores of a small machine
// keep both busy.
const maxWorkers = 4;

// What never comes takes so long to fail; a machine that is busy with other work may take minutes for a second.
const expectations = { poll: { timeout: 120_000 } };

const LEAVES_NOTHING = "test/support/process-wide.ts";

const leftOut = UNDER_UNITS ? LEFT_OUT : [];
const leftOutTests = leftOut.flatMap(({ tests = [] }) => tests);

// No module keeps state and none is mocked: nothing is isolated, since loading them anew for each file takes a second.
export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          setupFiles: LEAVES_NOTHING,
          testTimeout: 180_000,
          expect: expectations,
          maxWorkers,
          isolate: false,
        },
      },
      {
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          exclude: leftOut.flatMap(({ file, tests }) => (tests === undefined ? [file] : [])),
          ...(UNDER_UNITS ? { testNamePattern: new RegExp(`^(?!.*(?:${leftOutTests.join("|")}))`) } : {}),
          setupFiles: LEAVES_NOTHING,
          testTimeout: 300_000,
          hookTimeout: 300_000,
          expect: expectations,
          maxWorkers,
          isolate: false,
        },
      },
    ],
  },
});
