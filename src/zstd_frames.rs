//! Reads zstd frames that follow each other: some linkers make one of each piece of a section, and an
//! exported cache has one for each entry.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// What comes out of all frames, one after the other.
pub(crate) struct Frames<R: BufRead> {
    state: Option<State<R>>,
}

enum State<R: BufRead> {
    /// In a frame.
    Within(Box<StreamingDecoder<R, FrameDecoder>>),
    /// Before the next frame, or at the end.
    Between(R),
}

impl<R: BufRead> Frames<R> {
    /// The frames that `source` has.
    pub(crate) const fn new(source: R) -> Self {
        Self { state: Some(State::Between(source)) }
    }
}

impl<R: BufRead> Read for Frames<R> {
    /// After an error there is nothing more to read.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(state) = self.state.take() {
            let mut decoder = match state {
                State::Within(decoder) => decoder,
                State::Between(mut source) => {
                    if source.fill_buf()?.is_empty() {
                        break;
                    }
                    Box::new(StreamingDecoder::new(source).map_err(io::Error::other)?)
                }
            };
            let count = decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                self.state = Some(State::Within(decoder));
                return Ok(count);
            }
            self.state = Some(State::Between(decoder.into_inner()));
        }
        Ok(0)
    }
}
