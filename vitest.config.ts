import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** What takes longest begins first, so that the workers end together; the order of the others is vitest's own. */
const LONGEST: readonly RegExp[] = [
  /unit\/overlay\/mesh-succession/,
  /unit\/overlay\/mesh\/paths\/paths/,
  /unit\/overlay\/mesh\/hostile/,
  /e2e\/mesh-/,
  /e2e\/(names-and-addresses|disk|network-faults|limits)/,
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

// Tests mostly wait: for children, for sockets, for the disk. One worker more than the two cores of a small machine keeps both busy.
const maxWorkers = 3;

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          testTimeout: 60_000,
          maxWorkers,
          // No module keeps state and none is mocked, and loading them anew for each file takes longer than most of them.
          isolate: false,
        },
      },
      {
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          maxWorkers,
        },
      },
    ],
  },
});
