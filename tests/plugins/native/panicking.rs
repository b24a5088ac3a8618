//! A backend that keeps its host and then panics in `init`. `PathLength` is the length of the path from the host.

#[path = "INCLUDE/interposer/backend.rs"]
mod interposer;

use std::sync::Mutex;

use interposer::*;

static HOST: Mutex<Option<Host>> = Mutex::new(None);

struct Panicking;

impl Backend for Panicking {
    fn new() -> Panicking {
        Panicking
    }
    fn init(&self, host: Host, _options: Attributes) -> Result<()> {
        assert!(!host.library_path().is_empty());
        *HOST.lock().unwrap() = Some(host);
        panic!("in init")
    }
    fn support(&self, _layer: &Layer, _options: Attributes) -> Verdict {
        Verdict::yes()
    }
}

#[no_mangle]
pub extern "C" fn PathLength() -> i64 {
    HOST.lock().unwrap().as_ref().map_or(-1, |host| host.library_path().len() as i64)
}

export_backend!("Panicking", Panicking);
