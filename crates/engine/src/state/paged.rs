//! A growing array in pages: no element moves, and little room is kept for more.

/// Elements of a page.
const PAGE: usize = 1_024;

/// A growing array.
pub(crate) struct Paged<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Paged<T> {
        Paged { pages: Vec::new() }
    }
}

impl<T> Paged<T> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        let before = self.pages.len().saturating_sub(1) * PAGE;
        before + self.pages.last().map_or(0, Vec::len)
    }

    /// The element at an index.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at / PAGE)?.get(at % PAGE)
    }

    /// See [`Paged::get`].
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.pages.get_mut(at / PAGE)?.get_mut(at % PAGE)
    }

    /// Appends an element. The first page grows, since most arrays are short; later ones are whole.
    pub(crate) fn push(&mut self, element: T) {
        match self.pages.last_mut() {
            Some(page) if page.len() < PAGE => page.push(element),
            Some(_) => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(element);
                self.pages.push(page);
            }
            None => self.pages.push(vec![element]),
        }
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pages = self.pages.capacity() * size_of::<Vec<T>>();
        let elements: usize = self.pages.iter().map(Vec::capacity).sum();
        pages + elements * size_of::<T>()
    }
}
