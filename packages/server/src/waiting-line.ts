/**
 * Who waits for a lane, in the order of arrival. The engine tells a place once; this moves the others up when one leaves, so
 * that what a waiting client reads stays true.
 */

interface Waiting {
  readonly onMove: (position: number) => void;
}

export class WaitingLine {
  readonly #line: Waiting[] = [];

  /**
   * @param onMove told of each new place, 1 being the next
   * @returns what to call when the wait is over; harmless twice
   */
  join(onMove: (position: number) => void): () => void {
    const waiting = { onMove };
    this.#line.push(waiting);
    return () => {
      const index = this.#line.indexOf(waiting);
      if (index < 0) return;
      this.#line.splice(index, 1);
      for (const [offset, other] of this.#line.slice(index).entries()) other.onMove(index + offset + 1);
    };
  }
}
