/** The rules of the Backend port, each as a check over a fresh backend. `backend-conformance.ts` runs them. */

import assert from "node:assert/strict";
import type { Backend } from "../backend.ts";
import { Batch } from "../batch.ts";
import {
  assertSameRow,
  batchOf,
  decodeRows,
  differenceShare,
  feed,
  mostLikelyOf,
  promptTokens,
  tryDecode,
} from "./lane-driver.ts";

export interface ConformanceSubject {
  /** Opens a fresh backend: at least 3 lanes, lanes of 96 to 2,048 tokens, at least 32 batch rows, at least 5 output rows. */
  open(): Promise<Backend>;
  /**
   * How far logits of the same tokens may differ between two batch layouts, as a share of the row's spread: 0 for exact
   * arithmetic, about 0.01 for float kernels. It must be far below what wrong tokens cause; a case checks that.
   */
  readonly toleranceShare: number;
  /** Token sequences whose text is known. */
  readonly texts: ReadonlyArray<{ readonly tokens: readonly number[]; readonly text: string }>;
  /** Cases that cannot hold here, by name, each with its reason. */
  readonly skips?: Readonly<Record<string, string>>;
}

/** Throws an assertion error that says what does not hold. */
type Check = (backend: Backend, subject: ConformanceSubject) => Promise<void>;

export const conformanceChecks: Readonly<Record<string, Check>> = {
  "facts agree with each other": async (backend) => {
    const { vocabSize, laneCount, laneTokens, batchTokens, outputRows, endTokens, kvBytesPerToken, kvBytes } = backend.facts;
    for (const count of [vocabSize, laneCount, laneTokens, batchTokens, outputRows])
      assert.ok(Number.isInteger(count) && count > 0);
    assert.ok(
      laneCount >= 3 && laneTokens >= 96 && laneTokens <= 2048 && batchTokens >= 32 && outputRows >= 5,
      "the subject is too small or too large",
    );
    assert.ok(endTokens.every((token) => token >= 0 && token < vocabSize));
    assert.ok(kvBytesPerToken >= 0 && kvBytes >= 0);
  },

  "a fresh lane is empty and can resume at 0 only": async (backend) => {
    for (let lane = 0; lane < backend.facts.laneCount; lane++) {
      assert.equal(backend.storedTokens(lane), 0);
      assert.equal(backend.canResume(lane, 0), true);
      assert.equal(backend.canResume(lane, 1), false);
    }
  },

  "logits are one finite float per token of the vocabulary": async (backend) => {
    const row = await feed(backend, 0, promptTokens(backend, 1, 9));
    assert.equal(row.length, backend.facts.vocabSize);
    assert.ok(row.every(Number.isFinite));
    assert.equal(backend.storedTokens(0), 9);
    assert.equal(backend.storedTokens(1), 0);
  },

  "other tokens give other logits": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 1, 24);
    const other = [...prompt.slice(0, 12), ...promptTokens(backend, 2, 11), prompt[23] ?? 0];
    const share = differenceShare(await feed(backend, 0, prompt), await feed(backend, 1, other));
    assert.ok(
      share > 2 * toleranceShare,
      `12 other tokens change ${share} of the spread: a tolerance of ${toleranceShare} shows nothing`,
    );
  },

  "a prefill in chunks equals a prefill at once": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 3, 32);
    const whole = await feed(backend, 0, prompt);
    for (const [lane, chunkRows] of [
      [1, 7],
      [2, 1],
    ] as const) {
      assertSameRow(await feed(backend, lane, prompt, chunkRows), whole, toleranceShare, `chunks of ${chunkRows}`);
    }
  },

  "a prompt longer than a batch is stored whole": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 4, backend.facts.laneTokens - 1);
    const whole = await feed(backend, 0, prompt);
    assert.equal(backend.storedTokens(0), prompt.length);
    assertSameRow(await feed(backend, 1, prompt, 29), whole, toleranceShare, "chunks of 29");
  },

  "greedy decoding beside neighbours equals decoding alone": async (backend, { toleranceShare }) => {
    const steps = 12;
    const prompts = [5, 6, 7].map((seed) => promptTokens(backend, seed, 10 + seed));
    const alone: Float32Array[][] = [];
    const chosen: number[][] = [];
    for (const prompt of prompts) {
      let row = await feed(backend, 0, prompt);
      const rows = [row];
      const tokens: number[] = [];
      for (let step = 0; step < steps; step++) {
        tokens.push(mostLikelyOf(row));
        row = await feed(backend, 0, tokens.slice(-1));
        rows.push(row);
      }
      alone.push(rows);
      chosen.push(tokens);
      backend.truncate(0, 0);
    }
    for (const [lane, prompt] of prompts.entries()) await feed(backend, lane, prompt);
    for (let step = 0; step < steps; step++) {
      const outputs = await decodeRows(
        backend,
        chosen.map((tokens, lane) => ({ lane, tokens: [tokens[step] ?? 0] })),
      );
      for (const [lane, [row]] of outputs.entries()) {
        const expected = alone[lane]?.[step + 1];
        assert.ok(row && expected);
        assertSameRow(row, expected, toleranceShare, `lane ${lane}, step ${step}`);
      }
    }
  },

  "a mixed batch gives each asked row its own logits": async (backend, { toleranceShare }) => {
    const [first, second, third] = [8, 9, 10].map((seed) => promptTokens(backend, seed, 14));
    assert.ok(first && second && third);
    const expected = [
      [await feed(backend, 0, first)],
      [
        await feed(backend, 1, second.slice(0, 4)),
        await feed(backend, 1, second.slice(4, 9)),
        await feed(backend, 1, second.slice(9)),
      ],
      [await feed(backend, 2, third)],
    ];
    for (const lane of [0, 1, 2]) backend.truncate(lane, 0);
    await feed(backend, 0, first.slice(0, 13));
    await feed(backend, 2, third.slice(0, 8));
    // Lanes out of order, a decode row between two prefills, outputs inside a prefill.
    const outputs = await decodeRows(backend, [
      { lane: 2, tokens: third.slice(8) },
      { lane: 0, tokens: first.slice(13) },
      { lane: 1, tokens: second, outputs: [3, 8, 13] },
    ]);
    const actual = [outputs[1], outputs[2], outputs[0]];
    for (const [lane, rows] of expected.entries()) {
      for (const [index, row] of rows.entries()) {
        const other = actual[lane]?.[index];
        assert.ok(other);
        assertSameRow(other, row, toleranceShare, `lane ${lane}, output ${index}`);
      }
    }
  },

  "a row that did not ask has no logits": async (backend) => {
    await decodeRows(backend, [{ lane: 0, tokens: promptTokens(backend, 1, 3), outputs: [2] }]);
    assert.throws(() => backend.logitsOf(0));
    assert.throws(() => backend.logitsOf(3));
    assert.throws(() => backend.logitsOf(-1));
  },

  "a lane continues at its own length and nowhere beyond": async (backend) => {
    await feed(backend, 0, promptTokens(backend, 1, 20));
    assert.equal(backend.canResume(0, 0), true);
    assert.equal(backend.canResume(0, 20), true);
    assert.equal(backend.canResume(0, 21), false);
    assert.equal(backend.canResume(0, -1), false);
    backend.truncate(0, 20);
    assert.equal(backend.storedTokens(0), 20);
  },

  "a lane that can resume somewhere continues there like a fresh one": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 11, 30);
    const branch = promptTokens(backend, 12, 9);
    await feed(backend, 0, prompt);
    for (const length of [29, 17, 1]) {
      if (backend.canResume(0, length)) {
        backend.truncate(0, length);
        assert.equal(backend.storedTokens(0), length);
        const resumed = await feed(backend, 0, branch);
        assertSameRow(
          resumed,
          await feed(backend, 1, [...prompt.slice(0, length), ...branch]),
          toleranceShare,
          `resumed at ${length}`,
        );
      } else {
        assert.throws(() => backend.truncate(0, length), `canResume(0, ${length}) is false, so truncate must refuse`);
      }
      backend.truncate(0, 0);
      backend.truncate(1, 0);
      await feed(backend, 0, prompt);
    }
  },

  "a lane cut to 0 is like a fresh one": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 13, 18);
    await feed(backend, 0, promptTokens(backend, 14, 40), 16);
    backend.truncate(0, 0);
    assert.equal(backend.storedTokens(0), 0);
    assertSameRow(await feed(backend, 0, prompt), await feed(backend, 1, prompt), toleranceShare, "after a cut to 0");
  },

  "cutting one lane leaves its neighbours": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 15, 21);
    for (const lane of [0, 1, 2])
      await feed(backend, lane, lane === 1 ? prompt.slice(0, 20) : promptTokens(backend, 16 + lane, 25));
    backend.truncate(0, 0);
    backend.truncate(2, 0);
    assert.equal(backend.storedTokens(1), 20);
    const continued = await feed(backend, 1, prompt.slice(20));
    assertSameRow(continued, await feed(backend, 0, prompt), toleranceShare, "beside cut lanes");
  },

  "bad rows are refused and every lane stays as it was": async (backend, { toleranceShare }) => {
    const { vocabSize, laneCount, batchTokens, outputRows } = backend.facts;
    const prompt = promptTokens(backend, 17, 12);
    await feed(backend, 0, prompt.slice(0, 11));
    await feed(backend, 1, prompt.slice(0, 5));
    const good = [1, 5, 3] as const;
    const bad: Record<string, ReadonlyArray<readonly [lane: number, position: number, token: number]>> = {
      "no rows": [],
      "a gap before the first row": [good, [0, 12, 3]],
      "a position that is stored already": [good, [0, 10, 3]],
      "a gap between two rows": [good, [0, 11, 3], [0, 13, 3]],
      "a token beyond the vocabulary": [good, [0, 11, vocabSize]],
      "a negative token": [good, [0, 11, -1]],
      "a lane that does not exist": [good, [laneCount, 0, 3]],
      "a negative lane": [good, [-1, 0, 3]],
      "more rows than a batch holds": Array.from({ length: batchTokens + 1 }, (_, index) => [2, index, 3] as const),
      "more outputs than there are": Array.from({ length: outputRows + 1 }, (_, index) => [2, index, 3] as const),
    };
    for (const [what, rows] of Object.entries(bad)) {
      const batch = new Batch(Math.max(rows.length, 1));
      const wantsAll = rows.length <= outputRows + 1;
      for (const [lane, position, token] of rows) batch.push(lane, position, token, wantsAll);
      await assert.rejects(tryDecode(backend, batch), `${what} must be refused`);
      assert.deepEqual(
        [0, 1, 2].map((lane) => backend.storedTokens(lane)),
        [11, 5, 0],
        what,
      );
    }
    const continued = await feed(backend, 0, prompt.slice(11));
    assertSameRow(continued, await feed(backend, 2, prompt), toleranceShare, "after refused batches");
  },

  "every lane can be filled to its end at once; one token more answers no-room and changes nothing": async (backend) => {
    const { laneCount, laneTokens } = backend.facts;
    for (let lane = 0; lane < laneCount; lane++) {
      await feed(backend, lane, promptTokens(backend, 20 + lane, lane === 1 ? laneTokens - 1 : laneTokens));
    }
    const { batch } = batchOf(backend, [
      { lane: 1, tokens: [3] },
      { lane: 0, tokens: [3] },
    ]);
    assert.equal(await backend.decode(batch), "no-room");
    assert.equal(backend.storedTokens(0), laneTokens);
    assert.equal(backend.storedTokens(1), laneTokens - 1);
    await feed(backend, 1, [3]);
    assert.equal(backend.storedTokens(1), laneTokens);
  },

  "an aborted decode says what it stored and the lane continues there": async (backend, { toleranceShare }) => {
    const prompt = promptTokens(backend, 30, backend.facts.batchTokens + 9);
    await feed(backend, 0, prompt.slice(0, 8));
    const rows = backend.facts.batchTokens;
    const { batch } = batchOf(backend, [{ lane: 0, tokens: prompt.slice(8, 8 + rows) }]);
    const decoding = backend.decode(batch);
    assert.ok(decoding instanceof Promise, "a full batch runs beside the event loop, or nothing could abort it");
    backend.abort();
    const outcome = await decoding;
    const stored = backend.storedTokens(0);
    // A short call may be through before the abort is seen.
    assert.ok(outcome === "aborted" || outcome === "done", outcome);
    assert.ok(stored >= 8 && stored <= 8 + rows, `${stored} tokens stored`);
    if (outcome === "done") assert.equal(stored, 8 + rows);
    const continued = await feed(backend, 0, prompt.slice(stored));
    assertSameRow(continued, await feed(backend, 1, prompt), toleranceShare, "after an abort");
  },

  "an abort while nothing runs is forgotten": async (backend) => {
    backend.abort();
    await feed(backend, 0, promptTokens(backend, 1, backend.facts.batchTokens));
    backend.abort();
    await feed(backend, 0, [3]);
    assert.equal(backend.storedTokens(0), backend.facts.batchTokens + 1);
  },

  "pieces add up to the text, end tokens to nothing": async (backend, { texts }) => {
    assert.ok(texts.length > 0, "the subject names no texts");
    for (const { tokens, text } of texts) {
      assert.equal(Buffer.concat(tokens.map((token) => backend.pieceOf(token))).toString("utf8"), text);
    }
    for (const token of backend.facts.endTokens) assert.equal(backend.pieceOf(token).length, 0, `end token ${token} has text`);
  },

  "closing twice is closing once": async (backend) => {
    await feed(backend, 0, promptTokens(backend, 1, 4));
    await backend.close();
    await backend.close();
  },
};
